package isp

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"tegracast/pipeline"
)

// BenchmarkProcess makes full-size UYVY and half-size I420 of a 1080p frame. BenchmarkCopy copies the same number of
// bytes, read and written, for a ratio.
func BenchmarkProcess(b *testing.B) {
	for _, workers := range []int{1, runtime.GOMAXPROCS(0)} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			s := newStage(b, Config{Gains: Gains{R: 1.5, B: 1.1}, Workers: workers})
			in, outs := planned(b, s, testchart(b), full(pipeline.UYVY), half(pipeline.I420))
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				if err := s.Process(context.Background(), in, outs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCopy(b *testing.B) {
	// A copy reads as much as it writes; the stage reads 4,147,200 bytes and writes 4,147,200 + 777,600.
	src, dst := make([]byte, 1920*1080*2+960*540*3/2), make([]byte, 1920*1080*2+960*540*3/2)
	for i := range src { // else all its pages are the one zero page
		src[i] = byte(i)
	}
	b.SetBytes(int64(len(src)))
	b.ResetTimer()
	for b.Loop() {
		copy(dst, src)
	}
}
