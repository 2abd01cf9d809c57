// SPDX-License-Identifier: Apache-2.0

package cufile

// A backend makes the calls of a driver. The driver has checked their arguments, and knows what is registered: so both back ends
// refuse the same, in the same order.
type backend interface {
	// openFile gets ready to read and write a file that was opened with flags on the device dev, and closeFile ends that.
	openFile(f *File, flags int, dev uint64) error
	closeFile(f *File) error
	// addBuffer registers memory; place is for pieces. dropBuffer ends that.
	addBuffer(base uintptr, size int) (place int, err error)
	dropBuffer(r *region) error
	// transfer makes a transfer of a file that is held, and waits for its end.
	transfer(call string, op Op) (int, error)
	// together is how many of a batch's transfers, of the first ones, gather may make at once; 1: none with another.
	together(ops []Op) int
	// gather makes such transfers. If they are not whole after it, each is to be made by inBatch.
	gather(ops []Op) (whole bool)
	// inBatch makes a transfer of a batch, as transfer does.
	inBatch(call string, op Op) (int, error)
	// async puts a transfer on a stream, and has done called when the stream has come past it, unless there is an error.
	async(call string, s Stream, op Op, a *Async, flags StreamFlags, done func()) error
	// set changes a setting: its number in KiB, and whether transfers are polled for.
	set(call string, poll bool, kb uint64) error
	properties() (Properties, error)
	close() error
}

// compat is compatibility mode (§2.3).
type compat struct {
	driver *Driver
	engine engine
}

func newCompat(d *Driver, c *Config) *compat {
	b := &compat{driver: d}
	if !c.Calls {
		u, err := newURing()
		if err == nil {
			b.engine = u
			return b
		}
		d.log.Info("cuFile works without io_uring", "reason", err)
	}
	b.engine = newCalls()
	return b
}

func (c *compat) addBuffer(base uintptr, size int) (int, error) {
	return c.engine.addBuffer(base, size), nil
}

func (c *compat) dropBuffer(r *region) error {
	c.engine.dropBuffer(r.place)
	return nil
}

func (c *compat) set(string, bool, uint64) error { return nil }

func (c *compat) properties() (Properties, error) {
	_, ring := c.engine.(*uring)
	set := c.driver.settings()
	return Properties{
		Poll: set.Poll, PollThreshold: set.PollMax, MaxDirectIO: set.MaxDirectIO, AllowCompat: set.AllowCompat,
		MaxDeviceCache: set.MaxDeviceCache, MaxPinned: set.MaxPinned, URing: ring, Features: Batches | Streams,
	}, nil
}

func (c *compat) async(call string, s Stream, op Op, a *Async, flags StreamFlags, done func()) error {
	return s.Call(func() {
		defer done()
		a.set(op.File.inTurn(call, op, a.fill(op), flags))
	})
}

func (c *compat) close() error { return c.engine.close() }
