package pipeline

// A Result is what a stage found in a frame. It encodes to JSON.
type Result struct {
	Stage   string             `json:"stage"`
	Regions []Region           `json:"regions,omitempty"`
	Numbers map[string]float64 `json:"numbers,omitempty"`
	Bins    []uint32           `json:"bins,omitempty"` // a histogram, lowest bin first
}

// A Region is a rectangle of the frame in pixels, from the upper left corner.
type Region struct {
	X      int     `json:"x"`
	Y      int     `json:"y"`
	Width  int     `json:"width"`
	Height int     `json:"height"`
	Label  string  `json:"label,omitempty"`
	Score  float64 `json:"score,omitempty"` // 0 to 1
}
