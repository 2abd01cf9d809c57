package lines

// What the tests count on.
const (
	Trusted    = trusted
	BlinkEvery = blinkEvery
)
