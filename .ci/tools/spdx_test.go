// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bare lists the extensions of files without such a line: their formats have no comments, a tool writes them, or they
// belong to users.
var bare = []string{
	".json", ".png", ".sum", "LICENSE", "VERSION", "/config/default.yaml", "/etc/fstab", "/etc/hostname", "/etc/hosts", "/etc/machine-id",
}

// TestEveryFileHasItsLicence checks that one of the first two lines is an SPDX line (SPDX specification 2.3, annex E):
// GPL-2.0 for code that is linked into the kernel or built for it, Apache-2.0 for the rest.
func TestEveryFileHasItsLicence(t *testing.T) {
	n := 0
	for file := range strings.FieldsSeq(string(output(t, nil, "git", "ls-files"))) {
		if strings.Contains(file, "testdata/") || slices.ContainsFunc(bare, func(end string) bool { return strings.HasSuffix(file, end) }) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			continue // deleted but not committed
		}
		n++
		lines := strings.SplitN(string(text), "\n", 3)
		_, licence, found := strings.Cut(strings.Join(lines[:min(2, len(lines))], "\n"), "SPDX-License-Identifier: ")
		licence, _, _ = strings.Cut(licence, "\n")
		if licence = strings.TrimSuffix(strings.TrimSuffix(licence, " */"), " -->"); !found || licence != "Apache-2.0" && !strings.HasPrefix(licence, "GPL-2.0") {
			t.Errorf("%s: its first two lines have no SPDX-License-Identifier: Apache-2.0, or GPL-2.0 for the kernel: %q", file, licence)
		}
	}
	if n < 500 {
		t.Errorf("only %d files were looked at", n)
	}
}
