// registers: an LD_PRELOAD library that lets User-Mode Linux run on CPUs with AMX.
//
// User-Mode Linux keeps the registers of its programs in an XSAVE area of fixed size, which has no room for AMX tiles (8 KiB). Linux rejects a
// shorter area with EFAULT (PTRACE_SETREGSET, NT_X86_XSTATE), so each return to a program would fail. This library truncates the area on
// reads, and extends it with tiles in their initial state on writes. Nothing is lost, because only programs that request tiles
// (ARCH_REQ_XCOMP_PERM) can use them, and programs of a guest cannot. Intel SDM volume 1, section 13.4, defines the format.
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

// The state components of AMX, TILECFG and TILEDATA, which follow all others.
static const uint64_t TILES = 3ULL << 17;

static long registers(int request, pid_t pid, struct iovec *theirs) {
    static char area[ROOM] __attribute__((aligned(64)));
    struct iovec whole = {area, sizeof area};
    uint64_t present;
    // Needed before a write too, because it returns the length of the full area on this CPU.
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

// Replaces ptrace of the C library. It must not call dlsym, which allocates memory: User-Mode Linux replaces the allocator.
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
    // The system call stores the word through its last argument; the library function returns it.
    long word;
    long result = syscall(SYS_ptrace, request, pid, address, &word);
    if (result < 0)
        return result;
    errno = 0;
    return word;
}
