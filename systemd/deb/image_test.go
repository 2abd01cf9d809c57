// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	spec "github.com/opencontainers/image-spec/specs-go/v1"
)

// bundle unpacks an image with skopeo and umoci, and returns the folder of the container that umoci makes of it:
// config.json and rootfs. Both formats of the archive must have the same image.
func bundle(t *testing.T, archive string) string {
	t.Helper()
	for _, tool := range []string{"skopeo", "umoci"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("NEEDS %s, which reads the image: apt-get install --no-install-recommends crun skopeo umoci", tool)
		}
	}
	dir := t.TempDir()
	text(t, dir, "skopeo", "copy", "--quiet", "oci-archive:"+archive, "oci:image:oci")
	for _, format := range []string{"oci-archive:", "docker-archive:"} {
		type config struct{ RootFS spec.RootFS }
		var is [2]config
		for i, of := range []string{"oci:image:oci", format + archive} {
			if err := json.Unmarshal([]byte(text(t, dir, "skopeo", "inspect", "--config", of)), &is[i]); err != nil {
				t.Fatal(err)
			}
		}
		if len(is[0].RootFS.DiffIDs) != 2 || !slices.Equal(is[0].RootFS.DiffIDs, is[1].RootFS.DiffIDs) {
			t.Errorf("as %s the image has layers %v, unpacked %v", format, is[1], is[0])
		}
	}
	args := []string{"unpack", "--image", "image:oci", "bundle"}
	if os.Getuid() != 0 {
		args = slices.Insert(args, 1, "--rootless")
	}
	text(t, dir, "umoci", args...)
	return filepath.Join(dir, "bundle")
}

// container is a bundle that crun runs.
type container struct{ dir, state string }

// command returns a command of crun. It sees a hierarchy of control groups that crun accepts, and makes no group.
func (c container) command(ctx context.Context, args ...string) *exec.Cmd {
	const script = `mount -t cgroup2 none /sys/fs/cgroup && exec crun --cgroup-manager=disabled "$@"`
	return exec.CommandContext(ctx, "unshare", slices.Concat([]string{"--mount", "sh", "-c", script, "crun", "--root", c.state}, args)...)
}

// run returns a command that runs the program of the image with arguments: as the image says, in a network of its own,
// without capabilities.
func (c container) run(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(c.dir, "config.json")
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(was, &config); err != nil {
		t.Fatal(err)
	}
	process := config["process"].(map[string]any)
	if len(args) > 0 {
		process["args"] = append([]string{process["args"].([]any)[0].(string)}, args...)
	}
	process["terminal"], process["capabilities"] = false, map[string]any{}
	delete(process, "rlimits")
	config["mounts"] = slices.DeleteFunc(config["mounts"].([]any), func(m any) bool { // the state is in the image's own folder
		return m.(map[string]any)["destination"] == stateDir || m.(map[string]any)["destination"] == "/sys/fs/cgroup"
	})
	if err := os.WriteFile(file, encode(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return c.command(t.Context(), "run", "--bundle", c.dir, "tegracast")
}

// needsPins skips the test if no mirror that can be reached has the packages of Debian for the images: Debian removes a
// version when it has a newer one.
func needsPins(t *testing.T, archs ...string) {
	t.Helper()
	folder, err := pinFolder()
	if err != nil {
		t.Fatal(err)
	}
	for _, pin := range pins {
		for _, arch := range archs {
			_, err := pin.fetch(folder, arch, mirrors)
			if errors.Is(err, errSum) {
				t.Fatal(err)
			}
			if err != nil {
				t.Skipf("NEEDS Debian's packages as debian.go has them, or newer versions and sums there: %v", err)
			}
		}
	}
}

// TestImage makes the image for this machine's architecture, unpacks it with umoci and runs it with crun.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it links the program")
	}
	if _, err := exec.LookPath("crun"); err != nil {
		t.Skip("NEEDS crun, which runs the image: apt-get install --no-install-recommends crun skopeo umoci")
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "mount", "-t", "cgroup2", "none", "/sys/fs/cgroup").CombinedOutput(); err != nil {
		t.Skipf("NEEDS root, and a kernel that lets it mount: crun cannot run here: %v: %s", err, out)
	}
	needsPins(t, runtime.GOARCH)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	p := &packer{root: root, build: t.TempDir(), out: t.TempDir()}
	const version = "0.2.0~git20261123.abcdef0"
	if p.id, err = identify(root, version); err != nil {
		t.Fatal(err)
	}
	if err := p.program(runtime.GOARCH); err != nil {
		t.Fatal(err)
	}
	if err := p.image(runtime.GOARCH); err != nil {
		t.Fatal(err)
	}
	c := container{bundle(t, filepath.Join(p.out, p.title(runtime.GOARCH)+".oci.tar")), t.TempDir()}
	t.Cleanup(func() { _ = c.command(context.Background(), "delete", "--force", "tegracast").Run() })
	if out, err := c.run(t, "version").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "tegracast "+version+"\n") {
		t.Fatalf("version: %v\n%s", err, out)
	}
	out, err := c.run(t, "doctor").CombinedOutput()
	if !strings.Contains(string(out), "libcuda.so is not installed") || !strings.Contains(string(out), "openh264      not installed") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	authorities, err := os.ReadFile(filepath.Join(c.dir, "rootfs/etc/ssl/certs/ca-certificates.crt"))
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(authorities) || strings.Count(string(authorities), "BEGIN CERTIFICATE") < 100 {
		t.Errorf("the authorities that certify servers: %v, %d bytes", err, len(authorities))
	}
	c.finds(t)
	c.serves(t)
}

// finds checks that libraries are found by the cache of ldconfig, which NVIDIA's runtime runs for those that it mounts.
func (c container) finds(t *testing.T) {
	t.Helper()
	root := filepath.Join(c.dir, "rootfs")
	folders, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("folders of libraries: %q, %v", folders, err)
	}
	mounted := filepath.Join(folders[0], "nvidia")
	const drop = "etc/ld.so.conf.d/00-nvcr-1.conf"
	err = errors.Join(os.Mkdir(mounted, 0o755), os.WriteFile(filepath.Join(root, drop), []byte(strings.TrimPrefix(mounted, root)+"\n"), 0o644),
		os.Rename(filepath.Join(folders[0], "libdl.so.2"), filepath.Join(mounted, "libdl.so.2"))) // the program cannot start without it
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.run(t, "version").CombinedOutput(); err == nil {
		t.Errorf("without libdl: %s", out)
	}
	text(t, root, "/sbin/ldconfig", "-r", root, "-f", "/etc/ld.so.conf", "-C", "/etc/ld.so.cache")
	if out, err := c.run(t, "version").CombinedOutput(); err != nil {
		t.Errorf("with libdl in the cache: %v\n%s", err, out)
	}
}

// serves runs the image's default command with a configuration, asks it for its status, and ends it with SIGTERM.
func (c container) serves(t *testing.T) {
	t.Helper()
	const configuration = "sources: [{name: camera, model: {width: 320, height: 240}}]\nisp: [{name: isp, from: camera}]\n" +
		"outputs: [{name: raw, rtp: {payload: raw, destinations: [\"127.0.0.1:5004\"]}}]\n"
	if err := os.WriteFile(filepath.Join(c.dir, "rootfs/etc/tegracast/tegracast.yaml"), []byte(configuration), 0o644); err != nil {
		t.Fatal(err)
	}
	serve := c.run(t, "serve")
	pipe, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	serve.Stderr = serve.Stdout
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	late := time.AfterFunc(5*time.Minute, func() { _ = c.command(context.Background(), "kill", "tegracast", "KILL").Run() })
	defer late.Stop()
	lines := bufio.NewScanner(pipe)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "page: ") {
		said = append(said, lines.Text())
	}
	socket := filepath.Join(c.dir, "rootfs", runtimeDir, "web.sock")
	dial := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) }
	client := http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: time.Minute}
	r, err := client.Get("http://localhost/api/v1/status")
	if err != nil {
		t.Fatalf("status: %v\n%s", err, strings.Join(said, "\n"))
	}
	var status struct{ Outputs []struct{ Name string } }
	err = json.NewDecoder(r.Body).Decode(&status)
	r.Body.Close()
	if err != nil || len(status.Outputs) != 1 || status.Outputs[0].Name != "raw" {
		t.Errorf("status: %v %+v", err, status)
	}
	token, err := os.Stat(filepath.Join(c.dir, "rootfs", stateDir, "web.token"))
	if err != nil || token.Sys().(*syscall.Stat_t).Uid != imageUser {
		t.Errorf("the token: %v %+v", err, token)
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil { // crun passes it on
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, pipe)
	if err := serve.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// TestFetch checks that a package comes from the next mirror if one has another file or none, and later from the
// folder.
func TestFetch(t *testing.T) {
	answers := func(status int, text string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, text+r.URL.Path)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	const sum = "dcc8dc1be9303d8f9f666b6cbb3f8543c23a509b971859826530fde27f1ca703" // of "good/pool/a_1_all.deb"
	p := pinned{name: "a", version: "1", pool: "pool", sums: map[string]string{"all": sum}}
	gone, other, good := answers(http.StatusNotFound, "good"), answers(http.StatusOK, "other"), answers(http.StatusOK, "good")
	folder := t.TempDir()
	if _, err := p.fetch(folder, "arm64", []string{gone, other}); err == nil || !strings.Contains(err.Error(), gone+"/pool/a_1_all.deb: 404") ||
		!errors.Is(err, errSum) || !strings.Contains(err.Error(), other+"/pool/a_1_all.deb") {
		t.Errorf("of mirrors without it: %v", err)
	}
	for _, mirrors := range [][]string{{gone, other, good}, nil} {
		file, err := p.fetch(folder, "arm64", mirrors)
		if got, _ := os.ReadFile(file); err != nil || string(got) != "good/pool/a_1_all.deb" {
			t.Errorf("of %v: %v, %q has %q", mirrors, err, file, got)
		}
	}
}
