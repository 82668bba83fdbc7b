package layer

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/vpath"
)

func manyFiles(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("dir/sub/f%d", i)] = "content"
	}
	return files
}

func BenchmarkStatx(b *testing.B) {
	s := newBench(b, manyFiles(1))
	fd, err := openDirAt(s.sourceRoot, "dir/sub")
	must(b, err)
	defer unix.Close(fd)
	for b.Loop() {
		_, _ = statAt(fd, "f0")
	}
}

func BenchmarkLookupSource(b *testing.B) {
	s := newBench(b, manyFiles(100))
	for b.Loop() {
		_, err := s.LookupIn("/dir/sub", "f1")
		must(b, err)
	}
}

func BenchmarkLookupBesideAChange(b *testing.B) {
	s := newBench(b, manyFiles(100))
	s.write("/dir/sub/f0", "x")
	for b.Loop() {
		_, err := s.LookupIn("/dir/sub", "f1")
		must(b, err)
	}
}

func BenchmarkLookupAbsent(b *testing.B) {
	s := newBench(b, manyFiles(100))
	for b.Loop() {
		_, _ = s.LookupIn("/dir/sub", "absent")
	}
}

func BenchmarkReadDirSource(b *testing.B) {
	s := newBench(b, manyFiles(1000))
	for b.Loop() {
		_, err := s.ReadDir("/dir/sub")
		must(b, err)
	}
}

func BenchmarkReadDirBesideAChange(b *testing.B) {
	s := newBench(b, manyFiles(1000))
	s.write("/dir/sub/f0", "x")
	for b.Loop() {
		_, err := s.ReadDir("/dir/sub")
		must(b, err)
	}
}

func BenchmarkOpenSource(b *testing.B) {
	s := newBench(b, manyFiles(1))
	for b.Loop() {
		f, _, err := s.Open("/dir/sub/f0", false)
		must(b, err)
		f.Close()
	}
}

func BenchmarkCreate(b *testing.B) {
	s := newBench(b, nil)
	s.mkdir("/new")
	i := 0
	for b.Loop() {
		i++
		f, _, err := s.Create(vpath.Path(fmt.Sprint("/new/f", i)), 0o644)
		must(b, err)
		f.Close()
	}
}

func BenchmarkCopyUp(b *testing.B) {
	const n = 500
	for b.Loop() {
		b.StopTimer()
		s := newBench(b, manyFiles(n))
		time.Sleep(tick) // so that none is too young to be copied at once
		b.StartTimer()
		for i := range n {
			_, err := s.CopyUp(vpath.Path(fmt.Sprintf("/dir/sub/f%d", i)))
			must(b, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/copy")
}

func BenchmarkUnlinkSource(b *testing.B) {
	const n = 2000
	for b.Loop() {
		b.StopTimer()
		s := newBench(b, manyFiles(n))
		b.StartTimer()
		for i := range n {
			s.unlink(fmt.Sprintf("/dir/sub/f%d", i))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/unlink")
}

func BenchmarkWriteAt(b *testing.B) {
	for _, quota := range []int64{0, 1 << 30} {
		b.Run(fmt.Sprint("quota", quota), func(b *testing.B) {
			s := newBench(b, nil, func(o *Options) { o.Quota.Bytes = quota })
			f, _, err := s.Create("/f", 0o644)
			must(b, err)
			defer f.Close()
			block := make([]byte, 4096)
			for b.Loop() {
				_, err := f.WriteAt(block, 0)
				must(b, err)
			}
		})
	}
}
