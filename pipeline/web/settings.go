// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// ErrNoControl means that there is no camera or isp of that name that could be set.
var ErrNoControl = errors.New("there is nothing of that name that could be set")

// maxSetting is the longest setting, in bytes.
const maxSetting = 4 << 10

// An Exposure is how a camera is set.
type Exposure struct {
	Source       string  `json:"source"`
	Microseconds float64 `json:"exposure_us"`
	Gain         float64 `json:"gain"`
	Longest      float64 `json:"max_exposure_us"` // the frame period
	HasExposure  bool    `json:"has_exposure"`    // the exposure can be set
	HasGain      bool    `json:"has_gain"`        // the gain can be set
	HasAuto      bool    `json:"has_auto"`        // a loop can set both
	Auto         bool    `json:"auto"`            // it does
}

// An ExposureSetting sets a camera by hand, or has the loop do so again; 0 leaves a value as it is.
type ExposureSetting struct {
	Microseconds float64 `json:"exposure_us,omitempty"`
	Gain         float64 `json:"gain,omitempty"`
	Auto         bool    `json:"auto,omitempty"`
}

// A WhiteBalance is how an isp is set: gains beside green's.
type WhiteBalance struct {
	ISP     string  `json:"isp"`
	Red     float64 `json:"red"`
	Blue    float64 `json:"blue"`
	HasAuto bool    `json:"has_auto"` // a loop can set both
	Auto    bool    `json:"auto"`     // it does
}

// A WhiteBalanceSetting sets the gains by hand, or has the loop do so again.
type WhiteBalanceSetting struct {
	Red  float64 `json:"red,omitempty"`
	Blue float64 `json:"blue,omitempty"`
	Auto bool    `json:"auto,omitempty"`
}

// Settings are what can be set.
type Settings interface {
	Exposures() []Exposure
	WhiteBalances() []WhiteBalance
	// SetExposure and SetWhiteBalance return ErrNoControl where nothing of that name can be set.
	SetExposure(source string, s ExposureSetting) error
	SetWhiteBalance(isp string, s WhiteBalanceSetting) error
}

// addSettings lets clients set cameras and isps.
func (c *Config) addSettings(mux *http.ServeMux) {
	changes := c.changes()
	mux.Handle("PUT /api/v1/sources/{name}/exposure", changes(func(w http.ResponseWriter, r *http.Request) {
		set(w, r, c.Settings.SetExposure)
	}))
	mux.Handle("PUT /api/v1/isp/{name}/white_balance", changes(func(w http.ResponseWriter, r *http.Request) {
		set(w, r, c.Settings.SetWhiteBalance)
	}))
}

// set does what a request's JSON says.
func set[S any](w http.ResponseWriter, r *http.Request, do func(name string, s S) error) {
	var s S
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSetting))
	body.DisallowUnknownFields()
	err := body.Decode(&s)
	limit(w)
	if err != nil {
		http.Error(w, fmt.Sprintf("this is no setting: %v", err), http.StatusBadRequest)
		return
	}
	if err := do(r.PathValue("name"), s); err != nil {
		refuse(w, err)
		return
	}
	answer(w, nil)
}
