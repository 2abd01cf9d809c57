package kmodtest_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tegracast/board/vjetson"
)

// desktopHeader is what the specification shows of the desktop driver's nv-p2p.h (GPUDirect RDMA 12.9 §13.3).
const desktopHeader = `
#include <linux/types.h>
enum nvidia_p2p_page_size_type { NVIDIA_P2P_PAGE_SIZE_4KB, NVIDIA_P2P_PAGE_SIZE_64KB, NVIDIA_P2P_PAGE_SIZE_128KB };
struct nvidia_p2p_page_table { uint32_t version; uint32_t page_size; struct nvidia_p2p_page **pages; uint32_t entries; };
struct nvidia_p2p_dma_mapping { uint32_t version; uint32_t entries; uint64_t *dma_addresses; };
int nvidia_p2p_get_pages(uint64_t p2p_token, uint32_t va_space_token, uint64_t virtual_address, uint64_t length,
	struct nvidia_p2p_page_table **page_table, void (*free_callback)(void *data), void *data);
`

// The module builds without any nv-p2p.h, and says why it does not with the wrong one.
func TestForeignHeader(t *testing.T) {
	k, err := vjetson.Fetch(t.Context(), "arm64", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("none", func(t *testing.T) {
		if err := vjetson.BuildModule(t.Context(), k, "..", filepath.Join(t.TempDir(), "kmod")); err != nil {
			t.Error(err)
		}
	})
	t.Run("desktop", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "nvp2p"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "nvp2p/nv-p2p.h"), []byte(desktopHeader), 0o644); err != nil {
			t.Fatal(err)
		}
		err := vjetson.BuildModule(t.Context(), k, "..", filepath.Join(dir, "kmod"))
		if err == nil || !strings.Contains(err.Error(), "the desktop driver's: its calls take tokens, 64 KiB pages") {
			t.Errorf("%v", err)
		}
	})
}
