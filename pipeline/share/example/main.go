// SPDX-License-Identifier: Apache-2.0

// Example receives frames through package share and prints the mean of each frame's bytes: example SOCKET for those of an
// output, example -results SOCKET for those of an external stage, to which it returns the mean.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/share"
)

func main() {
	results := flag.Bool("results", false, "return the mean as a result")
	flag.Parse()
	c, err := share.Dial(context.Background(), share.ClientConfig{Socket: flag.Arg(0), Policy: pipeline.Latest, Answers: *results})
	for err == nil {
		var f *share.SharedFrame
		if f, err = c.Next(context.Background()); err != nil {
			break
		}
		sum := 0
		for _, b := range f.Bytes {
			sum += int(b)
		}
		mean := float64(sum) / float64(len(f.Bytes))
		fmt.Printf("%s: frame %d, %s: mean %.2f, lost %d\n", c.Name(), f.Sequence, c.Format(), mean, f.Lost)
		if *results {
			err = f.Respond(pipeline.Result{Numbers: map[string]float64{"mean": mean}})
		}
		if err == nil {
			err = f.Release()
		}
	}
	log.Fatal(err)
}
