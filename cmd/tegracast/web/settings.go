// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// ErrNoControl means that there is no adjustable camera or isp of that name.
var ErrNoControl = errors.New("there is nothing of that name that could be set")

// maxSetting is the maximum size of a setting in bytes.
const maxSetting = 4 << 10

// An Exposure is the setting of a camera.
type Exposure struct {
	Source       string  `json:"source"`
	Microseconds float64 `json:"exposure_us"`
	Gain         float64 `json:"gain"`
	Longest      float64 `json:"max_exposure_us"` // the longest possible exposure: the frame period
	HasExposure  bool    `json:"has_exposure"`    // the exposure can be set
	HasGain      bool    `json:"has_gain"`        // the gain can be set
	HasAuto      bool    `json:"has_auto"`        // there is a loop that can control the exposure
	Auto         bool    `json:"auto"`            // the loop controls it
}

// An ExposureSetting sets a camera manually, or, if Auto is true, returns control to the loop. A value of 0 leaves
// exposure or gain unchanged.
type ExposureSetting struct {
	Microseconds float64 `json:"exposure_us,omitempty"`
	Gain         float64 `json:"gain,omitempty"`
	Auto         bool    `json:"auto,omitempty"`
}

// A WhiteBalance is the white balance of an isp, as gains relative to green.
type WhiteBalance struct {
	ISP     string  `json:"isp"`
	Red     float64 `json:"red"`
	Blue    float64 `json:"blue"`
	HasAuto bool    `json:"has_auto"` // a loop can control both
	Auto    bool    `json:"auto"`     // the loop controls both
}

// A WhiteBalanceSetting sets the gains manually, or, if Auto is true, returns control to the loop.
type WhiteBalanceSetting struct {
	Red  float64 `json:"red,omitempty"`
	Blue float64 `json:"blue,omitempty"`
	Auto bool    `json:"auto,omitempty"`
}

// Settings reads and changes the settings of cameras and isps.
type Settings interface {
	Exposures() []Exposure
	WhiteBalances() []WhiteBalance
	// SetExposure returns ErrNoControl if no source of that name is a camera, and SetWhiteBalance if there is no isp of
	// that name with a colour sensor.
	SetExposure(source string, s ExposureSetting) error
	SetWhiteBalance(isp string, s WhiteBalanceSetting) error
}

// addSettings adds the handlers that set cameras and isps.
func (c *Config) addSettings(mux *http.ServeMux) {
	changes := changes()
	mux.Handle("PUT /api/v1/sources/{name}/exposure", changes(func(w http.ResponseWriter, r *http.Request) {
		set(w, r, c.Settings.SetExposure)
	}))
	mux.Handle("PUT /api/v1/isp/{name}/white_balance", changes(func(w http.ResponseWriter, r *http.Request) {
		set(w, r, c.Settings.SetWhiteBalance)
	}))
}

// set decodes a request's JSON and passes it to do.
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
