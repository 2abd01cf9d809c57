// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// refusedFolder returns a folder whose file system the stand-in for libcufile refuses.
func refusedFolder(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "refused")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestPrepareChooses checks which back end an optional library leads to, and why.
func TestPrepareChooses(t *testing.T) {
	device, lib, refused := standIn(t), standInLibrary(t), refusedFolder(t)
	recording := filepath.Join(refused, "file")
	if err := os.WriteFile(recording, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	accepted := t.TempDir()
	for name, tt := range map[string]struct {
		config Config
		paths  []string
		want   Mode
	}{
		"accepted":          {Config{Library: lib, Device: device}, []string{accepted}, Mode{true, "accepts"}},
		"not prepared":      {Config{Library: lib, Device: device}, nil, Mode{false, "not asked yet"}},
		"refused folder":    {Config{Library: lib, Device: device}, []string{refused}, Mode{false, "/run/udev"}},
		"refused file":      {Config{Library: lib, Device: device}, []string{recording}, Mode{false, recording + ": cuFile: the file is not registered (5027)"}},
		"one of two":        {Config{Library: lib, Device: device}, []string{refused, accepted}, Mode{false, "5027"}},
		"the other of two":  {Config{Library: lib, Device: device}, []string{accepted, refused}, Mode{false, "5027"}},
		"not installed":     {Config{Library: filepath.Join(accepted, "none.so"), Device: device}, []string{accepted}, Mode{false, "is not installed"}},
		"it does not start": {Config{Library: standInLibrary(t, "-DNO_CUDA"), Device: device}, []string{accepted}, Mode{false, "CUresult 100"}},
		"no CUDA":           {Config{Library: lib}, []string{accepted}, Mode{false, "memory is not CUDA's"}},
		"compatibility":     {Config{Device: device}, []string{accepted}, Mode{false, "as configured"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &site{config: tt.config, folder: accepted, memory: memory}
			s.config.Optional = true
			d := s.open(t, nil)
			for _, path := range tt.paths {
				want(t, d.Prepare(path), Success)
			}
			if m := d.Mode(); m.Library != tt.want.Library || !strings.Contains(m.Why, tt.want.Why) {
				t.Errorf("%+v, want %+v", m, tt.want)
			}
			h := s.handle(t, d, os.O_RDWR)
			if _, is := h.back.(*library); is != tt.want.Library {
				t.Errorf("a file is opened by %T", h.back)
			}
			s.roundTrip(t, d, 100_000)
			want(t, h.Deregister(), Success)
		})
	}
	for _, folder := range []string{accepted, refused} {
		if left, err := fs.Glob(os.DirFS(folder), ".*"); err != nil || len(left) > 0 {
			t.Errorf("left in the folder: %v, %v", left, err)
		}
	}
}

// TestChoicesMayDiffer checks that files and memory of both back ends can be used together, after a later path was refused.
func TestChoicesMayDiffer(t *testing.T) {
	s := &site{config: Config{Library: standInLibrary(t), Optional: true, Device: standIn(t)}, folder: t.TempDir(), memory: memory}
	d := s.open(t, nil)
	content, base := s.memory(t, 8192)
	pattern(content)
	want(t, d.RegisterBuffer(base, 4096, 0), Success)
	want(t, d.Prepare(s.folder), Success)
	want(t, d.RegisterBuffer(base+4096, 4096, 0), Success)
	first := s.handle(t, d, os.O_RDWR)
	want(t, d.Prepare(refusedFolder(t)), Success)
	second := s.handle(t, d, os.O_RDWR)
	if first.back == second.back {
		t.Fatalf("both files are opened by %T", first.back)
	}
	for _, e := range s.done(t, d, []Op{
		{File: first, Write: true, Base: base, Size: 4096},
		{File: second, Write: true, Base: base, Size: 4096},
		{File: second, Write: true, Base: base + 4096, Size: 4096, FileOffset: 4096},
		{File: first, Write: true, Base: base + 4096, Size: 4096, FileOffset: 4096},
	}) {
		if e.Err != nil || e.N != 4096 {
			t.Errorf("%+v", e)
		}
	}
	for _, h := range []*File{first, second} {
		holds(t, h, 0, content)
	}
	want(t, errors.Join(d.DeregisterBuffer(base), d.DeregisterBuffer(base+4096), first.Deregister(), second.Deregister()), Success)
}

// TestALibraryThatIsNotOptional checks that its refusal is an error, also if the settings make it necessary.
func TestALibraryThatIsNotOptional(t *testing.T) {
	device, refused := standIn(t), refusedFolder(t)
	for name, optional := range map[string]bool{"configured": false, "compatibility mode is not allowed": true} {
		s := &site{config: Config{Library: standInLibrary(t, "-DNVFS"), Optional: optional, Device: device}, folder: t.TempDir()}
		d := s.open(t, func(set *Settings) { set.AllowCompat = !optional })
		want(t, d.Prepare(s.folder), Success)
		err := d.Prepare(refused)
		want(t, err, HandleNotRegistered)
		if err == nil || !strings.Contains(err.Error(), refused+": ") || !strings.Contains(err.Error(), "/run/udev") {
			t.Errorf("%s: %v", name, err)
		}
		if !d.Mode().Library {
			t.Errorf("%s: %+v", name, d.Mode())
		}
	}
	set := DefaultSettings()
	set.AllowCompat = false
	_, err := Open(Config{Library: filepath.Join(refused, "none.so"), Optional: true, Device: device, Settings: set})
	if want(t, err, DriverNotInitialized); !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "allow_compat_mode") {
		t.Errorf("%v", err)
	}
}

// TestKeysWithoutEffectDependOnTheChoice checks that keys that only libcufile uses are logged once it is not used.
func TestKeysWithoutEffectDependOnTheChoice(t *testing.T) {
	set, err := ParseSettings("cufile.json", []byte(`{"logging": {"level": "TRACE"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for folder, lines := range map[string]int{t.TempDir(): 0, refusedFolder(t): 1} {
		var log strings.Builder
		d, err := Open(Config{Library: standInLibrary(t), Optional: true, Device: standIn(t), Settings: set, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		want(t, errors.Join(d.Prepare(folder), d.Prepare(folder), d.Close()), Success)
		if n := strings.Count(log.String(), "keys=logging.level"); n != lines {
			t.Errorf("%d lines, want %d:\n%s", n, lines, log.String())
		}
	}
}

// stuck is a Context that does nothing until it answers.
type stuck struct {
	begun, answers chan struct{}
	once           sync.Once
}

func (s *stuck) Do(f func() error) error {
	s.once.Do(func() { close(s.begun) })
	<-s.answers
	return f()
}

// TestATrialThatHangs checks that the driver works in compatibility mode while libcufile does not answer.
func TestATrialThatHangs(t *testing.T) {
	device := &stuck{begun: make(chan struct{}), answers: make(chan struct{})}
	s := &site{config: Config{Library: standInLibrary(t), Optional: true, Device: device}, folder: t.TempDir(), memory: memory}
	d := s.open(t, nil)
	prepared := make(chan error, 1)
	go func() { prepared <- d.Prepare(s.folder) }()
	<-device.begun
	waited := time.AfterFunc(time.Minute, func() { close(device.answers) })
	s.roundTrip(t, d, 8192)
	if m := d.Mode(); m.Library || !waited.Stop() {
		t.Errorf("the driver waits for the library: %+v", m)
	} else {
		close(device.answers)
	}
	if want(t, <-prepared, Success); !d.Mode().Library {
		t.Errorf("%+v", d.Mode())
	}
}
