// SPDX-License-Identifier: Apache-2.0

package uapi

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const header = "../kmod/tegra_p2p.h"

// structs holds the mirrored structs by their names in the header, without tegra_p2p_.
var structs = map[string]any{
	"info": Info{}, "region": Region{}, "segment": Segment{}, "pin": Pin{}, "query": Query{}, "put": Put{}, "alloc": Alloc{},
	"event": Event{}, "halt_op": HaltOp{}, "halt": Halt{}, "control": Control{},
}

// constants holds the constants by their names in the header, without TEGRA_P2P_.
var constants = map[string]uint64{
	"API_VERSION": APIVersion, "IOC": IOC,
	"GET_INFO": CallGetInfo, "GET_REGION": CallGetRegion, "PIN": CallPin, "QUERY": CallQuery, "PUT": CallPut, "ALLOC": CallAlloc,
	"SET_EVENT": CallSetEvent, "SET_HALT": CallSetHalt, "CONTROL": CallControl,
	"INFO_IOMMU": InfoIOMMU, "INFO_STRICT": InfoStrict, "INFO_UNSAFE": InfoUnsafe, "INFO_COHERENT": InfoCoherent,
	"INFO_NVP2P": InfoNVP2P, "INFO_FLR": InfoFLR,
	"INFO_NVP2P_BUILT": InfoNVP2PBuilt, "INFO_NVP2P_PRESENT": InfoNVP2PPresent, "INFO_NVP2P_FOREIGN": InfoNVP2PForeign, "INFO_INTX": InfoINTX,
	"INFO_ISOLATED_MSI": InfoIsolatedMSI,
	"ERROR_NONE":        ErrorNone, "ERROR_LINK": ErrorLink, "ERROR_FATAL": ErrorFatal, "ERROR_RESET": ErrorReset,
	"ERROR_SUSPEND": ErrorSuspend, "ERROR_SHUTDOWN": ErrorShutdown, "ERROR_EXPOSED": ErrorExposed, "ERROR_UNPLUG": ErrorUnplug,
	"STATE_LIVE": StateLive, "STATE_FENCED": StateFenced, "STATE_GONE": StateGone,
	"REGION_MMAP":   RegionMmap,
	"PIN_TO_DEVICE": PinToDevice, "PIN_FROM_DEVICE": PinFromDevice, "PIN_EXPECT_WB": PinExpectWB, "PIN_EXPECT_WC": PinExpectWC,
	"ATTR_WB": AttrWB, "ATTR_WC": AttrWC,
	"PIN_LIVE": PinLive, "PIN_REVOKED": PinRevoked,
	"REASON_NONE": ReasonNone, "REASON_INVALIDATE": ReasonInvalidate, "REASON_MM_EXIT": ReasonMMExit, "REASON_UNPLUG": ReasonUnplug,
	"EVENT_MSI": EventMSI, "EVENT_REVOKE": EventRevoke, "EVENT_ERROR": EventError,
	"HALT_W32": HaltW32, "HALT_W64": HaltW64, "HALT_POLL32": HaltPoll32, "HALT_OPS": HaltOps,
	"RESUME": ControlResume, "FENCE": ControlFence, "RESET": ControlReset, "UNMASK": ControlUnmask,
}

// TestNothingMissing compares the names in the header with those that the other tests cover.
func TestNothingMissing(t *testing.T) {
	b, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		pattern string
		known   func(string) bool
		want    int
	}{
		"constant": {`(?m)^#define TEGRA_P2P_(\w+)[ \t]+\S`, func(n string) bool { _, ok := constants[n]; return ok }, len(constants)},
		"struct":   {`(?m)^struct tegra_p2p_(\w+) \{`, func(n string) bool { return structs[n] != nil }, len(structs)},
	} {
		found := regexp.MustCompile(c.pattern).FindAllStringSubmatch(string(b), -1)
		for _, m := range found {
			if !c.known(m[1]) {
				t.Errorf("%s %s of the header is not mirrored", what, m[1])
			}
		}
		if len(found) != c.want {
			t.Errorf("%d of kind %s in the header, %d here", len(found), what, c.want)
		}
	}
}

// asserts returns a C program that only compiles if the header agrees with this package.
func asserts() string {
	var c strings.Builder
	c.WriteString("#include <stddef.h>\n#include \"tegra_p2p.h\"\n")
	for name, v := range constants {
		fmt.Fprintf(&c, "_Static_assert(TEGRA_P2P_%s == %#xULL, \"TEGRA_P2P_%s\");\n", name, v, name)
	}
	for name, v := range structs {
		typ := reflect.TypeOf(v)
		fmt.Fprintf(&c, "_Static_assert(sizeof(struct tegra_p2p_%s) == %d, \"size of %s\");\n", name, typ.Size(), name)
		for i := range typ.NumField() {
			f := typ.Field(i)
			field := fmt.Sprintf("((struct tegra_p2p_%s *)0)->%s", name, fieldName(f.Name))
			fmt.Fprintf(&c, "_Static_assert(sizeof(%s) == %d && offsetof(struct tegra_p2p_%s, %s) == %d, \"%s.%s\");\n",
				field, f.Type.Size(), name, fieldName(f.Name), f.Offset, name, f.Name)
		}
	}
	return c.String()
}

// fieldName returns a field's name in the header.
func fieldName(name string) string {
	if special, ok := map[string]string{"NSegs": "nsegs", "NIRQs": "n_irqs", "APIVersion": "api_version", "DMABits": "dma_bits"}[name]; ok {
		return special
	}
	words := regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(name, "${1}_$2")
	return strings.ToLower(words)
}

// TestCompiler compares sizes, offsets and values with C compilers; padding added by a compiler is an error.
func TestCompiler(t *testing.T) {
	source := filepath.Join(t.TempDir(), "asserts.c")
	if err := os.WriteFile(source, []byte(asserts()), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs(filepath.Dir(header))
	if err != nil {
		t.Fatal(err)
	}
	target := compilerTarget(t)
	kernel := "/usr/include/" + target // asm/types.h and asm/ioctl.h are the generic ones for all three
	for name, command := range map[string][]string{
		"host":   {"gcc"},
		"32-bit": {"gcc", "-m32", "-idirafter", kernel},
		"arm64":  {"aarch64-linux-gnu-gcc", "-idirafter", kernel},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "32-bit" && !strings.HasPrefix(target, "x86_64") {
				t.Skip("NEEDS an amd64 host: its gcc makes 32-bit programs, too")
			}
			args := append(command[1:], "-fsyntax-only", "-Wall", "-Wpadded", "-Werror", "-I", dir, source)
			if out, err := exec.CommandContext(t.Context(), command[0], args...).CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v\n%s", command[0], strings.Join(args, " "), err, out)
			}
		})
	}
}

func compilerTarget(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "gcc", "-dumpmachine").Output()
	if err != nil {
		t.Fatalf("the host's compiler, package gcc: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func TestErrors(t *testing.T) {
	_, err := GetInfo(-1)
	if !errors.Is(err, unix.EBADF) || !strings.Contains(err.Error(), "GET_INFO") {
		t.Errorf("closed descriptor: %v", err)
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	err = DoPin(int(null.Fd()), &Pin{}, make([]Segment, 3))
	if !errors.Is(err, unix.ENOTTY) || !strings.Contains(err.Error(), "load the module") {
		t.Errorf("another device: %v", err)
	}
}

// TestHints checks that error messages say what to do.
func TestHints(t *testing.T) {
	for _, c := range []struct {
		call  uint
		errno unix.Errno
		says  string
	}{
		{CallPin, unix.ENOMEM, "LimitMEMLOCK"},
		{CallPin, unix.ESTALE, "resume"},
		{CallPin, unix.E2BIG, "smaller"},
		{CallGetInfo, unix.E2BIG, "older"},
		{CallPut, unix.ENOENT, "put already"},
		{CallPut, unix.EBUSY, "unmap it first"},
		{CallControl, unix.EAGAIN, "reset the engine again"},
		{CallSetEvent, unix.EBUSY, "another process"},
		{CallSetHalt, unix.ENODEV, "open the device again"},
	} {
		if text := (&Error{c.call, c.errno}).Error(); !strings.Contains(text, c.says) {
			t.Errorf("%q does not say %q", text, c.says)
		}
	}
}
