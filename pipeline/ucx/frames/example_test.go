// SPDX-License-Identifier: Apache-2.0

package frames_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx/frames"
)

// A program takes every second frame of a camera and processes its pixels where they arrived.
func Example() {
	ctx := context.Background()
	r, err := frames.Connect(ctx, frames.ReceiverConfig{Address: "192.0.2.7:5020", Stream: "front", Every: 2})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Format())
	err = r.Run(ctx, func(f *pipeline.Frame) {
		fmt.Println(f.Sequence, f.Times.ExposureStart, len(f.Bytes), f.Results)
		f.Release() // the sender may send another one
	})
	if err != nil {
		log.Print(err)
	}
	if err := r.Close(); err != nil {
		log.Fatal(err)
	}
}
