// registers: preloaded into User-Mode Linux, makes it run on CPUs whose extended registers it has no room for.
//
// User-Mode Linux keeps the registers of its programs in an XSAVE area of fixed size, which ends before AMX's tiles (8 KiB). Linux takes back
// whole areas alone (PTRACE_SETREGSET, NT_X86_XSTATE: EFAULT for a shorter one), so that each return to a program would fail. Here the
// area is cut when it is read, and made whole with tiles in their initial state when it is written. Nothing is lost: tiles are for programs that
// have asked for them (ARCH_REQ_XCOMP_PERM), which no program of a guest can. The standard format of the area: Intel SDM volume 1, 13.4.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { HEADER = 512, HEADER_END = 576, ROOM = 64 * 1024 };

// AMX's state components, TILECFG and TILEDATA, which stand after all others.
static const uint64_t TILES = 3ULL << 17;

static long registers(int request, pid_t pid, struct iovec *theirs) {
    static char area[ROOM] __attribute__((aligned(64)));
    struct iovec whole = {area, sizeof area};
    uint64_t present;
    // Also before writing: what comes back tells how long a whole area is here.
    long result = syscall(SYS_ptrace, PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &whole);
    if (result < 0 || theirs->iov_len >= whole.iov_len || theirs->iov_len < HEADER_END)
        return syscall(SYS_ptrace, request, pid, (void *)NT_X86_XSTATE, theirs);
    if (request == PTRACE_SETREGSET) {
        memcpy(area, theirs->iov_base, theirs->iov_len);
        memset(area + theirs->iov_len, 0, whole.iov_len - theirs->iov_len);
    }
    memcpy(&present, area + HEADER, sizeof present);
    present &= ~TILES;
    memcpy(area + HEADER, &present, sizeof present);
    if (request == PTRACE_SETREGSET)
        return syscall(SYS_ptrace, request, pid, (void *)NT_X86_XSTATE, &whole);
    memcpy(theirs->iov_base, area, theirs->iov_len);
    return 0;
}

// ptrace of the C library, which User-Mode Linux calls. Its lookups (dlsym) allocate, which User-Mode Linux does by its own heap: so none here.
long ptrace(enum __ptrace_request request, ...) {
    va_list arguments;
    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);
    if ((request == PTRACE_GETREGSET || request == PTRACE_SETREGSET) && address == (void *)NT_X86_XSTATE)
        return registers(request, pid, data);
    if (request != PTRACE_PEEKTEXT && request != PTRACE_PEEKDATA && request != PTRACE_PEEKUSER)
        return syscall(SYS_ptrace, request, pid, address, data);
    // The system call stores the word that the library returns.
    long word;
    long result = syscall(SYS_ptrace, request, pid, address, &word);
    if (result < 0)
        return result;
    errno = 0;
    return word;
}
