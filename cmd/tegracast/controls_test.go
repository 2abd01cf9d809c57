// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// A pilot uses the page's controls.
type pilot struct {
	*testing.T
	ctx context.Context
}

// press presses the button of that id.
func (p pilot) press(id string) {
	p.Helper()
	if _, err := chromedp.Run(p.ctx, chromedp.Click("#"+id)); err != nil {
		p.Fatalf("%s: %v", id, err)
	}
}

// sees waits until an element has a text in it.
func (p pilot) sees(id, text string) {
	p.Helper()
	awaitPage(p.ctx, p, id+": "+text, fmt.Sprintf(`document.getElementById(%q).textContent.includes(%q)`, id, text))
}

// switches stops an output by its button and starts it again. The button that was pressed keeps the focus.
func (p pilot) switches(name string) {
	p.Helper()
	p.press("switch-" + name)
	p.sees("outputs", name+": stopped")
	p.sees("said-"+name, "stopped at")
	awaitPage(p.ctx, p, "the button to start", fmt.Sprintf(`document.activeElement.id === "switch-%[1]s" &&
		document.getElementById("switch-%[1]s").textContent.startsWith("Start")`, name))
	p.press("switch-" + name)
	p.sees("said-"+name, "started at")
	awaitPage(p.ctx, p, "the button to stop", fmt.Sprintf(`document.getElementById("switch-%s").textContent.startsWith("Stop")`, name))
}

// recorded waits until a folder has so many recordings.
func (p pilot) recorded(folder string, n int) {
	p.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		list, _ := filepath.Glob(filepath.Join(folder, "*.mcap"))
		if len(list) == n {
			return
		}
		if time.Since(began) > time.Minute {
			p.Fatalf("there are the recordings %q, and not %d", list, n)
		}
	}
}
