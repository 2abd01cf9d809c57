// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// TestDoctorHere checks that doctor reports a machine without an FPGA, with status 1.
func TestDoctorHere(t *testing.T) {
	status, out, errw := runs(t, "doctor", "--json")
	var got struct {
		Ready    bool
		Findings []struct{ What, Grade string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || errw != "" {
		t.Fatalf("%v %s\n%s", err, errw, out)
	}
	if got.Ready != (status == exitOK) || len(got.Findings) < 8 {
		t.Errorf("status %d, ready %v, %d findings", status, got.Ready, len(got.Findings))
	}
	if _, text, _ := runs(t, "doctor"); !strings.Contains(text, "camera of a real FPGA") {
		t.Error(text)
	}
}

// TestBadReport checks that an unwritable path for a report is refused.
func TestBadReport(t *testing.T) {
	dir := t.TempDir()
	there := programtest.Write(t, "there.tar", "mine")
	says(t, "exists", []string{"doctor", "--report", there}, exitUsage, there, "the file exists")
	says(t, "no folder", []string{"doctor", "--report", dir + "/nowhere/x.tar"}, exitUsage, "nowhere", "can be written to")
	says(t, "with the service", []string{"doctor", "--service", "--report", dir + "/x.tar"}, exitUsage, "--report and --service")
	says(t, "with JSON", []string{"doctor", "--json", "--report", dir + "/x.tar"}, exitUsage, "--json and --report")
}
