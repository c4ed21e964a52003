/* sqlite_vouch.c: a loadable extension of SQLite with the read-only VFS `vouch`.
 *
 *     .load ./sqlite_vouch
 *     .open file:/data/a.db?vfs=vouch&tree=@HOST,HOSTID&immutable=1
 *
 * Each page is verified before SQLite sees it. The database must have no write-ahead log or journal.
 * Temporary files and extensions are those of the system's VFS. */
#include <sqlite3ext.h>
#include <string.h>
#include <vouch.h>

SQLITE_EXTENSION_INIT1

struct open_file {
    sqlite3_file base;
    struct vouch_file *file;
};

static int file_close(sqlite3_file *file)
{
    vouch_file_close(((struct open_file *)file)->file);
    return SQLITE_OK;
}

static int file_read(sqlite3_file *file, void *buffer, int len, sqlite3_int64 offset)
{
    ssize_t count = vouch_pread(((struct open_file *)file)->file, buffer, (size_t)len, (uint64_t)offset);
    if (count < 0) {
        sqlite3_log(SQLITE_IOERR_READ, "vouch: %s", vouch_message());
        return SQLITE_IOERR_READ;
    }
    if (count < len) {
        memset((char *)buffer + count, 0, (size_t)(len - count));
        return SQLITE_IOERR_SHORT_READ;
    }
    return SQLITE_OK;
}

static int file_write(sqlite3_file *file, const void *data, int len, sqlite3_int64 offset)
{
    (void)file, (void)data, (void)len, (void)offset;
    return SQLITE_READONLY;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    (void)file, (void)size;
    return SQLITE_READONLY;
}

static int file_flags(sqlite3_file *file, int flags)
{
    (void)file, (void)flags;
    return SQLITE_OK;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    *size = (sqlite3_int64)vouch_file_size(((struct open_file *)file)->file);
    return SQLITE_OK;
}

static int file_is_reserved(sqlite3_file *file, int *reserved)
{
    (void)file;
    *reserved = 0;
    return SQLITE_OK;
}

static int file_control(sqlite3_file *file, int operation, void *argument)
{
    (void)file, (void)operation, (void)argument;
    return SQLITE_NOTFOUND;
}

static int file_sector(sqlite3_file *file)
{
    (void)file;
    return 4096;
}

static int file_characteristics(sqlite3_file *file)
{
    (void)file;
    return SQLITE_IOCAP_IMMUTABLE;
}

static const sqlite3_io_methods methods = {
    1, file_close, file_read, file_write, file_truncate, file_flags, file_size,
    file_flags, file_flags, file_is_reserved, file_control, file_sector, file_characteristics,
    0, 0, 0, 0, 0, 0,
};

static sqlite3_vfs *system_vfs;

static const int temporary =
    SQLITE_OPEN_TEMP_DB | SQLITE_OPEN_TRANSIENT_DB | SQLITE_OPEN_TEMP_JOURNAL | SQLITE_OPEN_SUBJOURNAL;

static int vfs_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *flags_out)
{
    struct open_file *opened = (struct open_file *)file;
    struct vouch_tree *tree;
    const char *name;
    int status;
    (void)vfs;
    opened->base.pMethods = 0;
    if (flags & temporary)
        return system_vfs->xOpen(system_vfs, path, file, flags, flags_out);
    /* Journals have no place in a tree. */
    if (!path || !(flags & SQLITE_OPEN_MAIN_DB) || !(name = sqlite3_uri_parameter(path, "tree")))
        return SQLITE_CANTOPEN;
    status = vouch_open(name, 0, &tree);
    if (status == VOUCH_OK) {
        status = vouch_file_open(tree, path, &opened->file);
        vouch_close(tree);
    }
    if (status < 0) {
        sqlite3_log(SQLITE_CANTOPEN, "vouch: %s", vouch_message());
        return SQLITE_CANTOPEN;
    }
    opened->base.pMethods = &methods;
    if (flags_out)
        *flags_out = (flags & ~SQLITE_OPEN_READWRITE) | SQLITE_OPEN_READONLY;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *path, int sync)
{
    (void)vfs, (void)path, (void)sync;
    return SQLITE_READONLY;
}

/* No journal and no write-ahead log. */
static int vfs_access(sqlite3_vfs *vfs, const char *path, int flags, int *result)
{
    (void)vfs, (void)path, (void)flags;
    *result = 0;
    return SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *path, int len, char *full)
{
    (void)vfs;
    sqlite3_snprintf(len, full, "%s", path);
    return SQLITE_OK;
}

static void *vfs_library_open(sqlite3_vfs *vfs, const char *path)
{
    (void)vfs;
    return system_vfs->xDlOpen(system_vfs, path);
}

static void vfs_library_error(sqlite3_vfs *vfs, int len, char *out)
{
    (void)vfs;
    system_vfs->xDlError(system_vfs, len, out);
}

static void (*vfs_library_symbol(sqlite3_vfs *vfs, void *library, const char *name))(void)
{
    (void)vfs;
    return system_vfs->xDlSym(system_vfs, library, name);
}

static void vfs_library_close(sqlite3_vfs *vfs, void *library)
{
    (void)vfs;
    system_vfs->xDlClose(system_vfs, library);
}

static int vfs_random(sqlite3_vfs *vfs, int len, char *out)
{
    (void)vfs;
    return system_vfs->xRandomness(system_vfs, len, out);
}

static int vfs_sleep(sqlite3_vfs *vfs, int microseconds)
{
    (void)vfs;
    return system_vfs->xSleep(system_vfs, microseconds);
}

static int vfs_time(sqlite3_vfs *vfs, double *now)
{
    (void)vfs;
    return system_vfs->xCurrentTime(system_vfs, now);
}

static int vfs_error(sqlite3_vfs *vfs, int len, char *out)
{
    (void)vfs, (void)len, (void)out;
    return 0;
}

static sqlite3_vfs vfs = {
    1, sizeof(struct open_file), 1024, 0, "vouch", 0, vfs_open, vfs_delete, vfs_access, vfs_full_path,
    vfs_library_open, vfs_library_error, vfs_library_symbol, vfs_library_close, vfs_random, vfs_sleep, vfs_time, vfs_error, 0, 0, 0, 0,
};

int sqlite3_sqlitevouch_init(sqlite3 *db, char **error, const sqlite3_api_routines *api)
{
    (void)db, (void)error;
    SQLITE_EXTENSION_INIT2(api);
    system_vfs = sqlite3_vfs_find(0);
    /* SQLite allocates so many bytes for an open file of either VFS. */
    if (vfs.szOsFile < system_vfs->szOsFile)
        vfs.szOsFile = system_vfs->szOsFile;
    sqlite3_vfs_register(&vfs, 0);
    return SQLITE_OK_LOAD_PERMANENTLY;
}
