// SPDX-License-Identifier: Apache-2.0

package kmodtest_test

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/board/vjetson/nvp2ptest"
)

// The parts of nv-p2p that tegra_p2p uses: fields of structures, constants, and calls with their arguments and an empty
// body.
var (
	interfaceFields = map[string]string{
		"struct nvidia_p2p_page_table":  "version page_size size entries pages vaddr mapped mm mn lock free_callback data",
		"struct nvidia_p2p_dma_mapping": "version hw_address hw_len entries sgt dev page_table direction",
	}
	interfaceConstants = []string{
		"PAGE_SIZE_4KB", "PAGE_SIZE_64KB", "PAGE_SIZE_128KB", "PAGE_SIZE_COUNT", "UNINITIALIZED", "PINNED", "MAPPED", "PAGE_TABLE_VERSION", "DMA_MAPPING_VERSION",
	}
	interfaceCalls = map[string]string{
		"get_pages":        "u64 a, u64 b, struct nvidia_p2p_page_table **c, void (*d)(void *), void *e",
		"put_pages":        "struct nvidia_p2p_page_table *a",
		"free_page_table":  "struct nvidia_p2p_page_table *a",
		"dma_map_pages":    "struct device *a, struct nvidia_p2p_page_table *b, struct nvidia_p2p_dma_mapping **c, enum dma_data_direction d",
		"dma_unmap_pages":  "struct nvidia_p2p_dma_mapping *a",
		"free_dma_mapping": "struct nvidia_p2p_dma_mapping *a",
	}
)

// interfaceModule returns the source of a module that exports the calls, and that has sizes, offsets and constants in an
// array. names describes the array's elements.
func interfaceModule() (source string, names []string) {
	var values, c strings.Builder
	add := func(name, value string) {
		names = append(names, name)
		fmt.Fprintf(&values, "\t%s,\n", value)
	}
	for s, fields := range interfaceFields {
		add("size of "+s, "sizeof("+s+")")
		for f := range strings.FieldsSeq(fields) {
			add("offset of "+s+"."+f, "offsetof("+s+", "+f+")")
			add("size of "+s+"."+f, "sizeof((("+s+" *)0)->"+f+")")
		}
	}
	for _, name := range interfaceConstants {
		add(name, "NVIDIA_P2P_"+name)
	}
	c.WriteString("#include <linux/dma-mapping.h>\n#include <linux/mm.h>\n#include <linux/mmu_notifier.h>\n#include <linux/module.h>\n" +
		"#include <linux/mutex.h>\n#include <linux/scatterlist.h>\n#include <nv-p2p.h>\n" +
		"const u64 layout[] = {\n" + values.String() + "};\nvoid versions(void);\nvoid versions(void)\n{\n")
	for _, what := range []string{"page_table", "dma_mapping"} {
		for version, good := range map[string]bool{"0x10000": true, "0x10001": true, "0x20000": false, "0xffff": false} {
			fmt.Fprintf(&c, "\t{ struct nvidia_p2p_%s v = { .version = %s };\n\tBUILD_BUG_ON(NVIDIA_P2P_%s_VERSION_COMPATIBLE(&v) != %t); }\n",
				what, version, strings.ToUpper(what), good)
		}
	}
	c.WriteString("}\n" + exports())
	return c.String(), names
}

// interfaceOf builds that module with the header in a folder.
func interfaceOf(t *testing.T, k vjetson.Kernel, source, header string) (values []uint64, versions []string) {
	t.Helper()
	src, dir := t.TempDir(), filepath.Join(t.TempDir(), "interface")
	files(t, src, map[string]string{"interface.c": source, "Kbuild": "obj-m := interface.o\nccflags-y += -idirafter " + header + "\n"})
	if err := vjetson.BuildModule(t.Context(), k, src, dir); err != nil {
		t.Fatal(err)
	}
	symvers, err := os.ReadFile(filepath.Join(dir, "Module.symvers"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(symvers)) {
		versions = append(versions, strings.Join(strings.Fields(line)[:2], " "))
	}
	slices.Sort(versions)
	f, err := elf.Open(filepath.Join(dir, "interface.ko"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "layout" })
	if i < 0 {
		t.Fatal("the module has no layout")
	}
	at := symbols[i]
	b, err := f.Sections[at.Section].Data()
	if err != nil {
		t.Fatal(err)
	}
	values = make([]uint64, at.Size/8)
	if _, err := binary.Decode(b[at.Value:at.Value+at.Size], f.ByteOrder, values); err != nil {
		t.Fatal(err)
	}
	return values, versions
}

// exports defines the calls. Their versions are checksums of the types of their arguments, including all types that these
// contain.
func exports() string {
	var c strings.Builder
	for name, args := range interfaceCalls {
		fmt.Fprintf(&c, "int nvidia_p2p_%s(%s) { return 0; }\nEXPORT_SYMBOL(nvidia_p2p_%[1]s);\n", name, args)
	}
	c.WriteString("MODULE_LICENSE(\"GPL\");\n")
	return c.String()
}

// TestInterface compares the module's own declarations with NVIDIA's header: sizes, offsets, constants, and, by the
// versions of the calls, every name and type in them.
func TestInterface(t *testing.T) {
	if !nvp2ptest.Here() {
		t.Skip("NEEDS " + nvp2ptest.Absent)
	}
	source, names := interfaceModule()
	own, err := filepath.Abs("../nvp2p")
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"arm64", "amd64"} {
		t.Run(arch, func(t *testing.T) {
			k, err := vjetson.Fetch(t.Context(), arch, slog.Default())
			if err != nil {
				t.Fatal(err)
			}
			values, versions := interfaceOf(t, k, source, own)
			wantValues, wantVersions := interfaceOf(t, k, source, os.Getenv(nvp2ptest.Variable))
			if len(values) != len(names) || len(wantValues) != len(names) {
				t.Fatalf("%d and %d values of %d", len(values), len(wantValues), len(names))
			}
			for i, name := range names {
				if values[i] != wantValues[i] {
					t.Errorf("%s: %d, want NVIDIA's %d", name, values[i], wantValues[i])
				}
			}
			if len(versions) != len(interfaceCalls) || !slices.Equal(versions, wantVersions) {
				t.Errorf("versions of the calls:\n%s\nwant NVIDIA's:\n%s", strings.Join(versions, "\n"), strings.Join(wantVersions, "\n"))
			}
		})
	}
}
