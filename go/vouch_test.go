package vouch

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"testing"
	"testing/fstest"
)

// NAME is a tree with the files of script/test-c.
func open(t *testing.T) *FS {
	tree, err := Open(os.Getenv("NAME"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

func TestConformsToFS(t *testing.T) {
	if err := fstest.TestFS(open(t), "hello", "numbers", "data/a.db"); err != nil {
		t.Fatal(err)
	}
}

func TestReadsAndSeeks(t *testing.T) {
	opened, err := open(t).Open("numbers")
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	file := opened.(*File)
	if _, err := file.Seek(-7, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(file); err != nil || string(rest) != "100000\n" {
		t.Fatalf("%q %v", rest, err)
	}
	buffer := make([]byte, 4)
	if _, err := file.ReadAt(buffer, 0); err != nil || string(buffer) != "1\n2\n" {
		t.Fatalf("%q %v", buffer, err)
	}
}

func TestErrorsHaveKinds(t *testing.T) {
	if _, err := open(t).Open("missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := Open("no name", Options{}); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	if _, err := Open(os.Getenv("NAME"), Options{Revision: 77}); !errors.Is(err, ErrNoRevision) || errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := Open(os.Getenv("NAME"), Options{NoCache: true, State: "/proc/nothing", StateRequired: true}); err == nil {
		t.Fatal("state that can't be written")
	}
	_, err := Open(os.Getenv("NAME"), Options{Only: true, Replicas: "127.0.0.1:1", Timeout: 1e9, NoCache: true, State: t.TempDir()})
	if !errors.Is(err, ErrUnreachable) {
		t.Fatal(err)
	}
}
