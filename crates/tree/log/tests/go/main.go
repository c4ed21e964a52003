// peer reads a log of ours with torchwood and Tessera's fsck (`check DIR`, or `read DIR` for any
// entries), checks one proof (`prove POLICY PROOF ENTRY`), and makes a log with Tessera for us to read
// in two steps (`make DIR OLD SIZE`). DIR.indexes has the entries to prove.
package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/mldsa"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"filippo.io/torchwood"
	formats "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func entry(number int64) []byte {
	return fmt.Appendf(nil, "entry %d %s", number, strings.Repeat("x", int(number%97)))
}

// directory is a torchwood.TileReader.
type directory string

func (d directory) ReadEndpoint(_ context.Context, path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(d), path))
}

func (d directory) ReadTiles(ctx context.Context, tiles []tlog.Tile) (data [][]byte, err error) {
	for _, tile := range tiles {
		bytes, err := d.ReadEndpoint(ctx, torchwood.TilePath(tile))
		if err != nil {
			return nil, err
		}
		data = append(data, bytes)
	}
	return data, nil
}

func (d directory) SaveTiles([]tlog.Tile, [][]byte) {}

// open verifies the checkpoint and all entries, and returns the tree and its hashes.
func open(dir string) (torchwood.Checkpoint, tlog.HashReader) {
	ctx, log := context.Background(), directory(dir)
	policy := must(torchwood.ParsePolicy(must(os.ReadFile(dir + ".policy"))))
	checkpoint, _, err := torchwood.VerifyCheckpoint(must(os.ReadFile(dir+".checkpoint")), policy)
	if err != nil {
		panic(err)
	}
	reader := must(torchwood.NewClient(log))
	var count int64
	for index, found := range reader.AllEntries(ctx, checkpoint.Tree, 0) {
		if index != count || !bytes.Equal(found, entry(index)) {
			panic(fmt.Sprintf("entry %d is %q", index, found))
		}
		count++
	}
	if reader.Err() != nil || count != checkpoint.N {
		panic(fmt.Sprintf("%d entries of %d: %v", count, checkpoint.N, reader.Err()))
	}
	return checkpoint, torchwood.TileHashReaderWithContext(ctx, checkpoint.Tree, log)
}

func hashes(bundle []byte) (result [][]byte, err error) {
	var entries api.EntryBundle
	if err := entries.UnmarshalText(bundle); err != nil {
		return nil, err
	}
	for _, entry := range entries.Entries {
		result = append(result, rfc6962.DefaultHasher.HashLeaf(entry))
	}
	return result, nil
}

func check(dir string) {
	checkpoint, reader := open(dir)
	verifier := must(formats.NewVerifier(strings.TrimSpace(string(must(os.ReadFile(dir + ".key"))))))
	source := client.FileFetcher{Root: dir}
	if err := fsck.New(checkpoint.Origin, verifier, source, hashes, fsck.Opts{N: 2}).Check(context.Background()); err != nil {
		panic(err)
	}
	policy := must(torchwood.ParsePolicy(must(os.ReadFile(dir + ".policy"))))
	for _, index := range indexes(dir) {
		proof := must(os.ReadFile(fmt.Sprintf("%s.%d.tlog-proof", dir, index)))
		if err := torchwood.VerifyProof(policy, tlog.RecordHash(entry(index)), proof); err != nil {
			panic(err)
		}
		if torchwood.VerifyProof(policy, tlog.RecordHash([]byte("other")), proof) == nil {
			panic("a false entry is proven")
		}
		fmt.Println("consistency", index+1, must(tlog.ProveTree(checkpoint.N, index+1, reader)))
	}
}

// read verifies the checkpoint in the log with the keys in DIR.pub, and all entries.
func read(dir string) {
	ctx, log := context.Background(), directory(dir)
	keys := strings.Fields(string(must(os.ReadFile(dir + ".pub"))))
	signed := must(os.ReadFile(filepath.Join(dir, "checkpoint")))
	policy := must(torchwood.ParsePolicy([]byte("log " + keys[0] + "\nwitness l " + keys[1] + "\nquorum l\n")))
	checkpoint, _, err := torchwood.VerifyCheckpoint(signed, policy)
	if err != nil {
		panic(err)
	}
	reader := must(torchwood.NewClient(log))
	for index, found := range reader.AllEntries(ctx, checkpoint.Tree, 0) {
		if !bytes.HasPrefix(found, []byte("vouch entry v1\n\x00")) && !bytes.HasPrefix(found, []byte("vouch seal v1\n\x00\x00")) {
			panic(fmt.Sprintf("entry %d is %q", index, found))
		}
	}
	if reader.Err() != nil {
		panic(reader.Err())
	}
	verifier := must(formats.NewVerifier(keys[0]))
	if err := fsck.New(checkpoint.Origin, verifier, client.FileFetcher{Root: dir}, hashes, fsck.Opts{N: 2}).Check(ctx); err != nil {
		panic(err)
	}
	fmt.Println(checkpoint.N, "entries of", checkpoint.Origin)
}

// prove verifies that a proof is about the content of a file.
func prove(policy, proof, entry string) {
	parsed := must(torchwood.ParsePolicy(must(os.ReadFile(policy))))
	text, content := must(os.ReadFile(proof)), must(os.ReadFile(entry))
	if err := torchwood.VerifyProof(parsed, tlog.RecordHash(content), text); err != nil {
		panic(err)
	}
	if torchwood.VerifyProof(parsed, tlog.RecordHash([]byte("other")), text) == nil {
		panic("a false entry is proven")
	}
	fmt.Println("proven")
}

func indexes(dir string) (result []int64) {
	for _, word := range strings.Fields(string(must(os.ReadFile(dir + ".indexes")))) {
		result = append(result, must(strconv.ParseInt(word, 10, 64)))
	}
	return result
}

func grow(dir string, signer note.Signer, from, to int64) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	options := tessera.NewAppendOptions().WithCheckpointSigner(signer).WithBatching(256, 50*time.Millisecond).
		WithCheckpointInterval(100 * time.Millisecond)
	log, shutdown, _, err := tessera.NewAppender(ctx, must(posix.New(ctx, posix.Config{Path: dir})), options)
	if err != nil {
		panic(err)
	}
	var added []tessera.IndexFuture
	for number := from; number < to; number++ {
		added = append(added, log.Add(ctx, tessera.NewEntry(entry(number))))
	}
	for number, future := range added {
		if index := must(future()); index.Index != uint64(from)+uint64(number) {
			panic(fmt.Sprintf("entry %d has index %d", from+int64(number), index.Index))
		}
	}
	if err := shutdown(ctx); err != nil {
		panic(err)
	}
}

func create(dir string, old, size int64) {
	secret, public, err := note.GenerateKey(rand.Reader, "go.example/log")
	if err != nil {
		panic(err)
	}
	signer := must(note.NewSigner(secret))
	edwards := ed25519.NewKeyFromSeed(must(io.ReadAll(io.LimitReader(rand.Reader, ed25519.SeedSize))))
	lattice := must(mldsa.GenerateKey(mldsa.MLDSA44()))
	cosigners := []*torchwood.CosignatureSigner{
		must(torchwood.NewCosignatureSigner("w0.example/a", edwards)),
		must(torchwood.NewCosignatureSigner("w1.example/b", lattice)),
	}
	policy := "log " + public + "\n"
	for number, cosigner := range cosigners {
		policy += fmt.Sprintf("witness w%d %s\n", number, cosigner.Verifier())
	}
	write := func(suffix, text string) {
		if err := os.WriteFile(dir+suffix, []byte(text), 0o644); err != nil {
			panic(err)
		}
	}
	write(".policy", policy+"group g all w0 w1\nquorum g\n")
	grow(dir, signer, 0, old)
	write(".old", string(must(os.ReadFile(dir+"/checkpoint"))))
	grow(dir, signer, old, size)
	verifier := must(note.NewVerifier(public))
	opened := must(note.Open(must(os.ReadFile(dir+"/checkpoint")), note.VerifierList(verifier)))
	cosigned := must(note.Sign(opened, cosigners[0], cosigners[1]))
	write(".checkpoint", string(cosigned))
	checkpoint, reader := open(dir)
	for _, index := range indexes(dir) {
		proof := must(tlog.ProveRecord(checkpoint.N, index, reader))
		write(fmt.Sprintf(".%d.tlog-proof", index), string(torchwood.FormatProof(index, proof, cosigned)))
	}
	fmt.Println("consistency", old, must(tlog.ProveTree(checkpoint.N, old, reader)))
}

func main() {
	switch os.Args[1] {
	case "check":
		check(os.Args[2])
	case "prove":
		prove(os.Args[2], os.Args[3], os.Args[4])
	case "read":
		read(os.Args[2])
	default:
		number := func(at int) int64 { return must(strconv.ParseInt(os.Args[at], 10, 64)) }
		create(os.Args[2], number(3), number(4))
	}
}
