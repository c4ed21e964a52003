/* vouch.h: verified reading of published trees. Each byte is verified before it is returned.
 *
 * All functions may be called from any thread; none calls back. A tree and a file may be shared by
 * threads until they are closed. After fork(2), a child gets VOUCH_FORKED from what its parent opened,
 * and may open trees itself.
 *
 * Functions return 0 or a count if they succeed, else a negative enum vouch_status. vouch_message()
 * then has one line of text for this thread. Paths are bytes that end with NUL, from the root of the
 * tree; symbolic links are followed within the tree. */
#ifndef VOUCH_H
#define VOUCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum vouch_status {
    VOUCH_OK = 0,
    VOUCH_NOT_FOUND = -1,     /* The signed tree proves that the name does not exist. */
    VOUCH_NOT_DIRECTORY = -2, /* A component of the path is not a directory. */
    VOUCH_IS_DIRECTORY = -3,  /* A file was expected. */
    VOUCH_INVALID = -4,       /* A wrong argument or policy, or a link out of the tree. */
    VOUCH_TAMPERED = -5,      /* Signatures or content are forged. */
    VOUCH_ROLLBACK = -6,      /* Replicas offer an older revision than one seen. */
    VOUCH_REVOKED = -7,       /* The tree's key was revoked. */
    VOUCH_EXPIRED = -8,       /* The newest revision is no longer valid. */
    VOUCH_UNWITNESSED = -9,   /* Cosignatures that a policy demands are missing. */
    VOUCH_UNREACHABLE = -10,  /* No replica answers in time. */
    VOUCH_DAMAGED = -11,      /* Frames are missing in all replicas. */
    VOUCH_LOCAL = -12,        /* A file or the configuration of this machine. */
    VOUCH_FORKED = -13,       /* Opened before fork(2). */
    VOUCH_NO_REVISION = -14   /* No replica has the revision, or it never existed. */
};

struct vouch_tree;
struct vouch_file;
struct vouch_list;

/* Zero means the default, so that a program may begin with memset. */
struct vouch_options {
    size_t size;           /* sizeof (struct vouch_options); demanded. */
    uint64_t revision;     /* An older revision; 0: the newest. */
    uint32_t timeout_ms;   /* Limit of each operation; 0: 30,000. */
    uint32_t flags;        /* VOUCH_ONLY_REPLICAS, the constants below. */
    const char *replicas;  /* HOST[:PORT], tls://HOST or URLs, separated by blanks; NULL: none. */
    const char *policy;    /* File with a policy of witnesses; NULL: none. */
    const char *cache;     /* Directory of the disk cache; NULL: as `vouch cat`. */
    const char *state;     /* Remembers the newest revision seen; NULL: as `vouch cat`. */
};

#define VOUCH_ONLY_REPLICAS 1u
#define VOUCH_NO_CACHE 2u
#define VOUCH_REPLICA_TLS 4u
#define VOUCH_STATE_REQUIRED 8u /* Refuse to open if `state` can't be written. */

struct vouch_stat {
    uint64_t size;     /* Bytes of a file, names in a directory. */
    int64_t mtime_s;   /* Since 1970. */
    uint32_t mtime_ns; /* 0 to 999,999,999. */
    uint32_t mode;     /* As st_mode, with the type. */
    uint32_t uid, gid, nlink;
    uint32_t reserved;
};

/* Opens NAME, @HOST[:PORT],HOSTID. OPTIONS may be NULL. */
int vouch_open(const char *name, const struct vouch_options *options, struct vouch_tree **tree);
/* Files and lists of the tree stay usable. NULL is allowed, here and below. */
void vouch_close(struct vouch_tree *tree);
/* The revision that is read. */
uint64_t vouch_revision(const struct vouch_tree *tree);
int vouch_stat(const struct vouch_tree *tree, const char *path, struct vouch_stat *stat);

int vouch_list_open(const struct vouch_tree *tree, const char *path, struct vouch_list **list);
/* 1: *NAME is the next name, sorted by bytes, valid until the next call; 0: the end. STAT may be NULL. */
int vouch_list_next(struct vouch_list *list, const char **name, struct vouch_stat *stat);
void vouch_list_close(struct vouch_list *list);

int vouch_file_open(const struct vouch_tree *tree, const char *path, struct vouch_file **file);
uint64_t vouch_file_size(const struct vouch_file *file);
/* As pread(2), but shorter than LEN only at the end of the file. */
ssize_t vouch_pread(const struct vouch_file *file, void *buffer, size_t len, uint64_t offset);
void vouch_file_close(struct vouch_file *file);

/* Checks each frame of the revision, past all caches; *BAD is the number of bad frames. */
int vouch_verify(const struct vouch_tree *tree, uint64_t *bad);

/* The last failure of this thread: one line, valid until its next call. */
const char *vouch_message(void);

#ifdef __cplusplus
}
#endif
#endif
