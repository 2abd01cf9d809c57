package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// program builds the binary once, as `make build` does. TEGRACAST_PROGRAM is one that was built before, for machines without Go.
var program = sync.OnceValues(func() (string, error) {
	if exe := os.Getenv("TEGRACAST_PROGRAM"); exe != "" {
		return exe, nil
	}
	dir, err := os.MkdirTemp("", "tegracast-test-")
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, "tegracast")
	cmd := exec.Command("go", "build", "-o", exe, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return exe, nil
})

func TestMain(m *testing.M) {
	status := m.Run()
	if exe, err := program(); err == nil && os.Getenv("TEGRACAST_PROGRAM") == "" {
		_ = os.RemoveAll(filepath.Dir(exe))
	}
	os.Exit(status)
}

// process is the program or a peer at work.
type process struct {
	*exec.Cmd
	name string
	out  bytes.Buffer // stdout
	err  bytes.Buffer // stderr
	done chan error
}

// start runs a command that is killed at the end of the test if it still runs then.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return startCommand(t, exec.Command(name, args...))
}

func startCommand(t *testing.T, c *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: c, name: filepath.Base(c.Path), done: make(chan error, 1)}
	p.Stdout, p.Stderr = &p.out, &p.err
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { p.done <- p.Cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-ended
	})
	return p
}

// wait returns the exit status.
func (p *process) wait(t *testing.T, bound time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
		return p.ProcessState.ExitCode()
	case <-time.After(bound):
		_ = p.Process.Kill()
		<-p.done
		t.Fatalf("%s did not end within %v\nstdout: %s\nstderr: %s", p.name, bound, p.out.String(), p.err.String())
		return -1
	}
}

// need waits for a peer to end well.
func (p *process) need(t *testing.T, bound time.Duration) {
	t.Helper()
	if s := p.wait(t, bound); s != 0 {
		t.Fatalf("%s: status %d\nstderr: %s", p.name, s, p.err.String())
	}
}

func startProgram(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, exe, args...)
}

// stop sends SIGTERM and expects status 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if s := p.wait(t, 10*time.Second); s != 0 {
		t.Errorf("status %d on SIGTERM\nstderr: %s", s, p.err.String())
	}
}

// await waits until something is in a file.
func await(t *testing.T, path string) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if st, err := os.Stat(path); err == nil && st.Size() > 0 {
			return
		}
	}
	t.Fatalf("%s was not written", path)
}

// write puts text into a new file.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A picture is what is wanted of every frame: a layout, and how many times smaller it is.
type picture struct {
	pixel  pipeline.PixelFormat
	shrink int
}

// pictures makes what the default isp makes of the first n frames of the test chart's upper left corner.
func pictures(t *testing.T, width, height, n int, wanted ...picture) (made [][][]byte) {
	t.Helper()
	sensor, err := modelSensor(&ModelConfig{Width: width, Height: height, Rate: word[pipeline.Rate]{pipeline.Rate{Num: 30, Den: 1}}, Shift: new(2)})
	if err != nil {
		t.Fatal(err)
	}
	stage, err := isp.New(isp.Config{Gains: isp.Gains{R: 1.5, G: 1, B: 1.1}, Demosaic: isp.Malvar})
	if err != nil {
		t.Fatal(err)
	}
	defer stage.Close()
	frame := func(p pipeline.PixelFormat, w, h int) *pipeline.Frame {
		f, err := pipeline.NewFormat(p, w, h, pipeline.Rate{})
		if err != nil {
			t.Fatal(err)
		}
		return pipeline.NewPool("test", f, []pipeline.Slot{{Bytes: make([]byte, f.Size())}}, nil).Get()
	}
	in := frame(pipeline.RGGB10, width, height)
	var outs []*pipeline.Frame
	var formats []pipeline.Format
	for _, w := range wanted {
		outs = append(outs, frame(w.pixel, width/w.shrink, height/w.shrink))
		formats = append(formats, outs[len(outs)-1].Format)
	}
	if err := stage.Plan(in.Format, formats); err != nil {
		t.Fatal(err)
	}
	made = make([][][]byte, len(wanted))
	for i := range n {
		sensor.Frame(uint64(i), in.Bytes)
		if err := stage.Process(context.Background(), in, outs); err != nil {
			t.Fatal(err)
		}
		for k, out := range outs {
			made[k] = append(made[k], bytes.Clone(out.Bytes))
		}
	}
	return made
}

// psnr is the peak signal-to-noise ratio of two 8-bit planes in dB.
func psnr(a, b []byte) float64 {
	sum := 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	if sum == 0 {
		return math.Inf(1)
	}
	return 10 * math.Log10(255*255*float64(len(a))/sum)
}

// split cuts a file into frames of n bytes.
func split(t *testing.T, path string, n int) [][]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for ; len(b) >= n; b = b[n:] {
		frames = append(frames, b[:n])
	}
	return frames
}

// runs runs the program in this process.
func runs(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errw bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	status = run(ctx, args, &out, &errw)
	return status, out.String(), strings.TrimSpace(errw.String())
}

// quiet runs a test of streaming at full rate up to three times: on a machine that is busy with something else packets get
// lost, and that is no fault of the program. Wrong bytes are, and f reports them to t itself.
func quiet(t *testing.T, f func(t *testing.T) error) {
	t.Helper()
	for try := 1; ; try++ {
		err := f(t)
		if err == nil {
			return
		}
		if try == 3 {
			t.Fatal(err)
		}
		t.Logf("try %d: %v", try, err)
	}
}
