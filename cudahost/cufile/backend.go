// SPDX-License-Identifier: Apache-2.0

package cufile

// A backend performs the calls of a driver. The driver has checked the arguments and keeps the registrations, so that
// both back ends refuse the same calls, in the same order.
type backend interface {
	// openFile prepares file f, which was opened with the given flags and is on device dev, for transfers. closeFile
	// undoes that.
	openFile(f *File, flags int, dev uint64) error
	closeFile(f *File) error
	// addBuffer registers memory. place is the memory's number, by which pieces of transfers refer to it; -1: none.
	// dropBuffer ends the registration.
	addBuffer(base uintptr, size int) (place int, err error)
	dropBuffer(r *region) error
	// transfer performs a transfer of a held file, and waits for its end.
	transfer(call string, op Op) (int, error)
	// together returns how many transfers, from the first of ops on, gather may perform as one. 1 means that the first
	// one cannot be combined.
	together(ops []Op) int
	// gather performs transfers that together has counted. If it returns false, each must be performed again by
	// inBatch.
	gather(ops []Op) (whole bool)
	// inBatch performs a transfer of a batch, like transfer.
	inBatch(call string, op Op) (int, error)
	// async places a transfer on a stream. If it returns no error, done is called after the stream has passed the
	// transfer.
	async(call string, s Stream, op Op, a *Async, flags StreamFlags, done func()) error
	// set changes the setting of the given call to kb KiB. poll is used for the poll mode only: whether to poll for
	// the end of transfers.
	set(call string, poll bool, kb uint64) error
	properties() (Properties, error)
	close() error
}

// compat is the back end of compatibility mode (§2.3).
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
