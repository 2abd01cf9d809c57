// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cmd/tegracast/web"
)

const controlUsage = `Usage: tegracast %s NAME [--config FILE]

%s

Status 1 when no serve answers, or when it refuses.
`

// control returns a command that sends a POST request for the output NAME, which is between two parts of the path.
func control(name, before, after, about string) func(context.Context, env, []string) error {
	return func(ctx context.Context, e env, args []string) error {
		f := e.flags(name, fmt.Sprintf(controlUsage, name, about))
		file := configOption(f)
		if err := parseOptions(f, args); err != nil {
			return err
		}
		if f.NArg() != 1 {
			return terminal.UsageError{Err: fmt.Errorf("name an output: try tegracast %s --help", name)}
		}
		ask, err := askerFor(*file)
		if err != nil {
			return err
		}
		_, err = ask.askOutput(ctx, http.MethodPost, before, f.Arg(0), after)
		return err
	}
}

var (
	startCommand = control("start", "/api/v1/outputs/", "/start",
		"Has the serve that runs on this machine start the output NAME: one that was\nstopped, or one that has failed, without waiting for the next attempt.")
	stopCommand = control("stop", "/api/v1/outputs/", "/stop",
		"Has the serve that runs on this machine close the output NAME and its readers,\nuntil it is started, or until serve restarts or reloads.")
	triggerCommand = control("trigger", "/record/", "/trigger",
		"Has the serve that runs on this machine trigger the recording NAME: it keeps\nthe frames around now.")
)

const setUsage = `Usage: tegracast set SOURCE [--exposure TIME] [--gain N] [--config FILE]
       tegracast set ISP --red N --blue N [--config FILE]
       tegracast set NAME --auto [--config FILE]

Has the serve that runs on this machine set the exposure and gain of the camera
SOURCE, or the white balance of ISP. --auto gives them back to the isp that
controls them (auto in its configuration). Values last until the source or the
isp is opened again.

  tegracast set camera --exposure 8ms --gain 2

Status 1 when no serve answers, or when it refuses.
`

func setCommand(ctx context.Context, e env, args []string) error {
	f := e.flags("set", setUsage)
	file := configOption(f)
	exposure := f.Duration("exposure", 0, "exposure `TIME` of the camera")
	gain, red, blue := f.Float64("gain", 0, "gain `N` of the camera"), f.Float64("red", 0, "gain `N` of red"), f.Float64("blue", 0, "gain `N` of blue")
	auto := f.Bool("auto", false, "let the isp control exposure and gain, or white balance")
	if err := parseOptions(f, args); err != nil {
		return err
	}
	camera, balance := f.Changed("exposure") || f.Changed("gain"), f.Changed("red") || f.Changed("blue")
	switch {
	case f.NArg() != 1:
		return terminal.UsageError{Err: errors.New("name a source or an isp: try tegracast set --help")}
	case camera && balance, *auto && (camera || balance), !*auto && !camera && !balance:
		return terminal.UsageError{Err: errors.New("give --exposure and --gain, or --red and --blue, or --auto")}
	case f.Changed("exposure") && *exposure <= 0, f.Changed("gain") && !(*gain > 0): // not a number is refused, too
		return terminal.UsageError{Err: errors.New("--exposure and --gain must be above 0")}
	case f.Changed("red") != f.Changed("blue"):
		return terminal.UsageError{Err: errors.New("give --red and --blue together")}
	}
	ask, err := askerFor(*file)
	if err != nil {
		return err
	}
	name := url.PathEscape(f.Arg(0))
	source, isp := "/api/v1/sources/"+name+"/exposure", "/api/v1/isp/"+name+"/white_balance"
	switch {
	case camera:
		return ask.put(ctx, source, web.ExposureSetting{Microseconds: float64(*exposure) / float64(time.Microsecond), Gain: *gain})
	case balance:
		return ask.put(ctx, isp, web.WhiteBalanceSetting{Red: *red, Blue: *blue})
	}
	err = ask.put(ctx, source, web.ExposureSetting{Auto: true})
	if refused, is := errors.AsType[*refusal](err); !is || refused.status != http.StatusNotFound {
		return err
	}
	return ask.put(ctx, isp, web.WhiteBalanceSetting{Auto: true})
}
