// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// A recorder is a file system that stores what is read from it.
type recorder struct {
	root fs.FS

	mu    sync.Mutex
	files map[string][]byte
}

func newRecorder(root fs.FS) *recorder { return &recorder{root: root, files: map[string][]byte{}} }

// maxFact is the maximum number of bytes that are stored of a file.
const maxFact = 256 << 10

func (r *recorder) keep(name string, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files[name] = append(r.files[name], b[:min(len(b), maxFact-min(maxFact, len(r.files[name])))]...)
}

// Open implements fs.FS.
func (r *recorder) Open(name string) (fs.File, error) {
	f, err := r.root.Open(name)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	delete(r.files, name) // it is read again from the beginning
	r.mu.Unlock()
	return recordedFile{f, r, name}, nil
}

type recordedFile struct {
	fs.File
	r    *recorder
	name string
}

func (f recordedFile) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	f.r.keep(f.name, b[:n])
	return n, err
}

// ReadFile implements fs.ReadFileFS.
func (r *recorder) ReadFile(name string) ([]byte, error) {
	b, err := fs.ReadFile(r.root, name)
	if err == nil {
		r.mu.Lock()
		delete(r.files, name)
		r.mu.Unlock()
		r.keep(name, b)
	}
	return b, err
}

// ReadLink implements fs.ReadLinkFS.
func (r *recorder) ReadLink(name string) (string, error) {
	target, err := fs.ReadLink(r.root, name)
	if err == nil {
		r.mu.Lock()
		r.files[name] = []byte("-> " + target + "\n")
		r.mu.Unlock()
	}
	return target, err
}

// Lstat implements fs.ReadLinkFS.
func (r *recorder) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(r.root, name) }

// Stat implements fs.StatFS. It opens nothing, because opening some device files has effects.
func (r *recorder) Stat(name string) (fs.FileInfo, error) { return fs.Stat(r.root, name) }

// ReadDir implements fs.ReadDirFS.
func (r *recorder) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(r.root, name) }

// names returns the names of the files and links that were read, sorted.
func (r *recorder) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.files))
}

// text returns what was read of a file, with line breaks in place of a device tree's zero bytes. It returns
// configuration spaces, and what is not text, in hexadecimal.
func (r *recorder) text(name string) string {
	r.mu.Lock()
	b := bytes.Clone(r.files[name])
	r.mu.Unlock()
	control := func(c rune) bool { return c < ' ' && c != '\n' && c != '\t' && c != '\r' && c != 0 }
	switch {
	case strings.HasSuffix(name, "/config"):
		return configText(b)
	case !utf8.Valid(b) || bytes.ContainsFunc(b, control):
		return hexText(b)
	}
	return strings.ReplaceAll(string(b), "\x00", "\n")
}
