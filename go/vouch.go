// Package vouch reads published trees as an io/fs.FS. Each byte is verified before it is returned.
//
// It calls libvouch by cgo: script/build-libvouch installs the library and its pkg-config file.
package vouch

/*
#cgo pkg-config: vouch
#include <stdlib.h>
#include <string.h>
#include <vouch.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// Errors by kind; test with errors.Is. A missing name is fs.ErrNotExist.
var (
	ErrTampered    = errors.New("signatures or content are forged")
	ErrRollback    = errors.New("replicas offer an older revision than one seen")
	ErrRevoked     = errors.New("the key of the tree was revoked")
	ErrExpired     = errors.New("the newest revision is no longer valid")
	ErrUnwitnessed = errors.New("cosignatures that a policy demands are missing")
	ErrUnreachable = errors.New("no replica answers in time")
	ErrDamaged     = errors.New("frames are missing in all replicas")
	ErrNoRevision  = errors.New("no replica has the revision")
)

var kinds = map[C.int]error{
	C.VOUCH_NOT_FOUND:     fs.ErrNotExist,
	C.VOUCH_NOT_DIRECTORY: syscall.ENOTDIR,
	C.VOUCH_IS_DIRECTORY:  syscall.EISDIR,
	C.VOUCH_INVALID:       fs.ErrInvalid,
	C.VOUCH_TAMPERED:      ErrTampered,
	C.VOUCH_ROLLBACK:      ErrRollback,
	C.VOUCH_REVOKED:       ErrRevoked,
	C.VOUCH_EXPIRED:       ErrExpired,
	C.VOUCH_UNWITNESSED:   ErrUnwitnessed,
	C.VOUCH_UNREACHABLE:   ErrUnreachable,
	C.VOUCH_DAMAGED:       ErrDamaged,
	C.VOUCH_NO_REVISION:   ErrNoRevision,
}

// Options of Open; the zero value is the default.
type Options struct {
	Revision uint64        // An older revision; 0: the newest.
	Timeout  time.Duration // Limit of each operation; 0: 30 s.
	Replicas string        // HOST[:PORT], tls://HOST or URLs, separated by blanks.
	Only     bool          // Ask Replicas instead of the host in the name.
	TLS      bool          // Read over TLS only.
	Policy   string        // File with a policy of witnesses.
	NoCache  bool          // No disk cache.
	Cache    string        // Directory of the disk cache; empty: that of the command.
	State    string        // Remembers the newest revision seen; empty: that of the command.

	StateRequired bool // Refuse to open a tree if State can't be written.
}

// FS is one revision of a tree. Goroutines may share it. It implements fs.StatFS and fs.ReadDirFS.
type FS struct{ tree *C.struct_vouch_tree }

// Open opens a tree by its self-certifying name, @HOST[:PORT],HOSTID.
func Open(name string, options Options) (*FS, error) {
	var texts []*C.char
	text := func(value string) *C.char {
		if value == "" {
			return nil
		}
		texts = append(texts, C.CString(value))
		return texts[len(texts)-1]
	}
	defer func() {
		for _, each := range texts {
			C.free(unsafe.Pointer(each))
		}
	}()
	// In C memory: it has pointers.
	given := (*C.struct_vouch_options)(C.calloc(1, C.sizeof_struct_vouch_options))
	defer C.free(unsafe.Pointer(given))
	given.size = C.sizeof_struct_vouch_options
	given.revision = C.uint64_t(options.Revision)
	given.timeout_ms = C.uint32_t(options.Timeout.Milliseconds())
	for flag, isSet := range map[C.uint32_t]bool{C.VOUCH_ONLY_REPLICAS: options.Only, C.VOUCH_NO_CACHE: options.NoCache, C.VOUCH_REPLICA_TLS: options.TLS, C.VOUCH_STATE_REQUIRED: options.StateRequired} {
		if isSet {
			given.flags |= flag
		}
	}
	given.replicas, given.policy = text(options.Replicas), text(options.Policy)
	given.cache, given.state = text(options.Cache), text(options.State)
	opened := &FS{}
	named := C.CString(name)
	defer C.free(unsafe.Pointer(named))
	if err := call(func() C.int { return C.vouch_open(named, given, &opened.tree) }); err != nil {
		return nil, err
	}
	return opened, nil
}

// Close releases the tree; open files stay usable.
func (tree *FS) Close() error {
	C.vouch_close(tree.tree)
	tree.tree = nil
	return nil
}

// Revision is the revision that is read.
func (tree *FS) Revision() uint64 { return uint64(C.vouch_revision(tree.tree)) }

// Open opens a file or a directory. Files implement io.ReaderAt and io.Seeker.
func (tree *FS) Open(name string) (fs.File, error) {
	info, err := tree.info("open", name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return &directory{tree: tree, info: info, name: name}, nil
	}
	file := &File{info: info, name: name}
	path := C.CString(name)
	defer C.free(unsafe.Pointer(path))
	if err := call(func() C.int { return C.vouch_file_open(tree.tree, path, &file.file) }); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return file, nil
}

// Stat follows symbolic links within the tree.
func (tree *FS) Stat(name string) (fs.FileInfo, error) { return tree.info("stat", name) }

// ReadDir lists a directory, sorted by name. Entries are not followed.
func (tree *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	}
	var list *C.struct_vouch_list
	path := cPath(name)
	defer C.free(unsafe.Pointer(path))
	if err := call(func() C.int { return C.vouch_list_open(tree.tree, path, &list) }); err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	defer C.vouch_list_close(list)
	var entries []fs.DirEntry
	for {
		var found *C.char
		var stat C.struct_vouch_stat
		more := C.int(0)
		if err := call(func() C.int { more = C.vouch_list_next(list, &found, &stat); return more }); err != nil {
			return entries, &fs.PathError{Op: "readdir", Path: name, Err: err}
		}
		if more == 0 {
			return entries, nil
		}
		entries = append(entries, fs.FileInfoToDirEntry(&fileInfo{C.GoString(found), stat}))
	}
}

func (tree *FS) info(operation, name string) (*fileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: operation, Path: name, Err: fs.ErrInvalid}
	}
	path := cPath(name)
	defer C.free(unsafe.Pointer(path))
	info := &fileInfo{name: base(name)}
	if err := call(func() C.int { return C.vouch_stat(tree.tree, path, &info.stat) }); err != nil {
		return nil, &fs.PathError{Op: operation, Path: name, Err: err}
	}
	return info, nil
}

// File is an open regular file.
type File struct {
	file   *C.struct_vouch_file
	info   *fileInfo
	name   string
	offset int64
}

func (file *File) Stat() (fs.FileInfo, error) { return file.info, nil }

func (file *File) Read(buffer []byte) (int, error) {
	if len(buffer) == 0 {
		return 0, nil
	}
	count, err := file.pread(buffer, file.offset)
	file.offset += int64(count)
	if err == nil && count == 0 {
		err = io.EOF
	}
	return count, err
}

// ReadAt may be called by several goroutines at once.
func (file *File) ReadAt(buffer []byte, offset int64) (int, error) {
	count, err := file.pread(buffer, offset)
	if err == nil && count < len(buffer) {
		err = io.EOF
	}
	return count, err
}

func (file *File) pread(buffer []byte, offset int64) (int, error) {
	if file.file == nil {
		return 0, &fs.PathError{Op: "read", Path: file.name, Err: fs.ErrClosed}
	}
	if offset < 0 {
		return 0, &fs.PathError{Op: "read", Path: file.name, Err: fs.ErrInvalid}
	}
	var count C.ssize_t
	place := unsafe.Pointer(unsafe.SliceData(buffer))
	err := call(func() C.int {
		count = C.vouch_pread(file.file, place, C.size_t(len(buffer)), C.uint64_t(offset))
		return C.int(min(count, 0))
	})
	if err != nil {
		return 0, &fs.PathError{Op: "read", Path: file.name, Err: err}
	}
	return int(count), nil
}

func (file *File) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += file.offset
	case io.SeekEnd:
		offset += file.info.Size()
	}
	if offset < 0 {
		return 0, &fs.PathError{Op: "seek", Path: file.name, Err: fs.ErrInvalid}
	}
	file.offset = offset
	return offset, nil
}

func (file *File) Close() error {
	if file.file == nil {
		return &fs.PathError{Op: "close", Path: file.name, Err: fs.ErrClosed}
	}
	C.vouch_file_close(file.file)
	file.file = nil
	return nil
}

type directory struct {
	tree    *FS
	info    *fileInfo
	name    string
	entries []fs.DirEntry
	isRead  bool
}

func (dir *directory) Stat() (fs.FileInfo, error) { return dir.info, nil }
func (dir *directory) Close() error               { return nil }
func (dir *directory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: dir.name, Err: syscall.EISDIR}
}

func (dir *directory) ReadDir(count int) ([]fs.DirEntry, error) {
	if !dir.isRead {
		entries, err := dir.tree.ReadDir(dir.name)
		if err != nil {
			return nil, err
		}
		dir.entries, dir.isRead = entries, true
	}
	if count <= 0 || count > len(dir.entries) {
		if count > 0 && len(dir.entries) == 0 {
			return nil, io.EOF
		}
		count = len(dir.entries)
	}
	entries := dir.entries[:count]
	dir.entries = dir.entries[count:]
	return entries, nil
}

type fileInfo struct {
	name string
	stat C.struct_vouch_stat
}

func (info *fileInfo) Name() string { return info.name }
func (info *fileInfo) Size() int64  { return int64(info.stat.size) }
func (info *fileInfo) IsDir() bool  { return info.Mode().IsDir() }
func (info *fileInfo) Sys() any     { return nil }
func (info *fileInfo) ModTime() time.Time {
	return time.Unix(int64(info.stat.mtime_s), int64(info.stat.mtime_ns))
}

func (info *fileInfo) Mode() fs.FileMode {
	mode := fs.FileMode(info.stat.mode & 0o777)
	for bit, meaning := range map[C.uint32_t]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if info.stat.mode&bit != 0 {
			mode |= meaning
		}
	}
	types := map[C.uint32_t]fs.FileMode{
		syscall.S_IFDIR: fs.ModeDir, syscall.S_IFLNK: fs.ModeSymlink, syscall.S_IFIFO: fs.ModeNamedPipe, syscall.S_IFSOCK: fs.ModeSocket,
		syscall.S_IFBLK: fs.ModeDevice, syscall.S_IFCHR: fs.ModeDevice | fs.ModeCharDevice,
	}
	return mode | types[info.stat.mode&syscall.S_IFMT]
}

// call keeps the thread, whose last message belongs to a failure.
func call(work func() C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	status := work()
	if status >= 0 {
		return nil
	}
	message := C.GoString(C.vouch_message())
	if kind := kinds[status]; kind != nil {
		return fmt.Errorf("%s (%w)", message, kind)
	}
	return errors.New(message)
}

func cPath(name string) *C.char {
	if name == "." {
		name = ""
	}
	return C.CString(name)
}

func base(name string) string {
	for at := len(name) - 1; at >= 0; at-- {
		if name[at] == '/' {
			return name[at+1:]
		}
	}
	return name
}
