// SPDX-License-Identifier: Apache-2.0

// Example receives frames of an output through package share and prints the mean of each frame's bytes: example SOCKET.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/share"
)

func main() {
	c, err := share.Dial(context.Background(), share.ClientConfig{Socket: os.Args[len(os.Args)-1], Policy: pipeline.Latest})
	for err == nil {
		var f *share.SharedFrame
		if f, err = c.Next(context.Background()); err == nil {
			sum := 0
			for _, b := range f.Bytes {
				sum += int(b)
			}
			fmt.Printf("%s: frame %d, %s: mean %.2f, lost %d\n", c.Name(), f.Sequence, c.Format(), float64(sum)/float64(len(f.Bytes)), f.Lost)
			err = f.Release()
		}
	}
	log.Fatal(err)
}
