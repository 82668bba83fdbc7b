package layer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
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

// perFile times do for each of n files of 4 KiB, on a new stack each round, and reports the
// median, because the disk delays some files by the writes of others.
func perFile(b *testing.B, n int, prepare, do func(s *bench, p vpath.Path)) {
	b.Helper()
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("dir/sub/f%d", i)] = strings.Repeat("line of text\n", 315) + fmt.Sprint(i)
	}
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		s := newBench(b, files)
		each := func(do func(s *bench, p vpath.Path)) {
			for i := range n {
				do(s, vpath.Path(fmt.Sprintf("/dir/sub/f%d", i)))
			}
		}
		if prepare != nil {
			s.mkdir("/new")
			each(prepare)
		}
		unix.Sync()
		time.Sleep(tick) // so that awaitTick does not wait for any file
		b.StartTimer()
		each(func(s *bench, p vpath.Path) {
			start := time.Now()
			do(s, p)
			took = append(took, time.Since(start))
		})
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "ns/file")
}

func newPath(p vpath.Path) vpath.Path { return vpath.Path("/new").Child(p.Base()) }

func makeNew(s *bench, p vpath.Path) {
	f, _, err := s.Create(newPath(p), 0o644)
	must(s.t, err)
	f.Close()
}

func BenchmarkCopyUp(b *testing.B) {
	perFile(b, 500, nil, func(s *bench, p vpath.Path) {
		_, err := s.CopyUp(p)
		must(b, err)
	})
}

func BenchmarkOpenSourceToWrite(b *testing.B) {
	perFile(b, 500, nil, func(s *bench, p vpath.Path) {
		f, _, err := s.Open(p, true)
		must(b, err)
		f.Close()
	})
}

func BenchmarkTruncateSource(b *testing.B) {
	perFile(b, 500, nil, func(s *bench, p vpath.Path) {
		_, err := s.SetAttr(p, SetAttr{Size: new(int64)})
		must(b, err)
	})
}

// BenchmarkReadLog reads the records of 5,000 files with their contents.
func BenchmarkReadLog(b *testing.B) {
	s := newBench(b, manyFiles(1))
	for i := range 5000 {
		base := someBase
		must(b, s.journal.Keep(&base, []byte(strings.Repeat("line of text\n", 315)+fmt.Sprint(i))))
		must(b, s.journal.Append(journal.BaseRecord(vpath.Path(fmt.Sprint("/dir/sub/g", i)), base)))
	}
	for b.Loop() {
		_, err := s.journal.Bases()
		must(b, err)
	}
}

func BenchmarkRenameSource(b *testing.B) {
	perFile(b, 500, nil, func(s *bench, p vpath.Path) {
		_, err := s.Rename(p, p+"x", RenameOptions{KeepReplaced: true})
		must(b, err)
	})
}

func BenchmarkUnlinkSource(b *testing.B) {
	perFile(b, 2000, nil, func(s *bench, p vpath.Path) {
		o, err := s.Unlink(p, true)
		must(b, err)
		o.Forget()
	})
}

func BenchmarkCreateInNewDir(b *testing.B) {
	perFile(b, 2000, func(*bench, vpath.Path) {}, makeNew)
}

func BenchmarkRenameNew(b *testing.B) {
	perFile(b, 2000, makeNew, func(s *bench, p vpath.Path) {
		_, err := s.Rename(newPath(p), newPath(p)+"x", RenameOptions{KeepReplaced: true})
		must(b, err)
	})
}

func BenchmarkUnlinkNew(b *testing.B) {
	perFile(b, 2000, makeNew, func(s *bench, p vpath.Path) {
		o, err := s.Unlink(newPath(p), true)
		must(b, err)
		o.Forget()
	})
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

// BenchmarkDrop drops 3,000 changes at once, as after applying them.
func BenchmarkDrop(b *testing.B) {
	const n = 3000
	for _, shape := range []struct {
		name  string
		dirs  int
		fresh bool
	}{{"modified/in 30 directories", 30, false}, {"modified/in one directory", 1, false}, {"created/in one directory", 1, true}} {
		b.Run(shape.name, func(b *testing.B) {
			files := map[string]string{}
			var paths []vpath.Path
			for i := range n {
				name := fmt.Sprintf("d%d/f%d", i%shape.dirs, i)
				paths = append(paths, vpath.Path("/"+name))
				files[name] = "content"
			}
			for b.Loop() {
				b.StopTimer()
				s := newBench(b, files)
				for _, p := range paths {
					if shape.fresh {
						_, err := s.Unlink(p, false)
						must(b, err)
					}
					s.write(string(p), "changed")
				}
				b.StartTimer()
				must(b, s.Drop(paths...))
			}
		})
	}
}

// BenchmarkFreeze freezes a delta of 100,000 changed files.
func BenchmarkFreeze(b *testing.B) {
	bench := newBench(b, nil)
	for i := range 100_000 {
		if i%1000 == 0 {
			bench.mkdir(fmt.Sprintf("/d%d", i/1000))
		}
		f, _, err := bench.Create(vpath.Path(fmt.Sprintf("/d%d/f%d", i/1000, i)), 0o644)
		must(b, err)
		f.Close()
	}
	b.ResetTimer()
	for i := range b.N {
		b.StopTimer()
		if i%maxFrozenLive == maxFrozenLive-1 {
			return
		}
		bench.write("/changed", fmt.Sprint(i))
		b.StartTimer()
		must(b, bench.Freeze())
	}
}

// BenchmarkLookupThroughLayers looks up, not cached by the kernel, a file of the lowest layer.
func BenchmarkLookupThroughLayers(b *testing.B) {
	for _, layers := range []int{1, 10} {
		b.Run(fmt.Sprint(layers), func(b *testing.B) {
			bench := newBench(b, nil)
			bench.mkdir("/d")
			bench.write("/d/f", "x")
			for i := range layers - 1 {
				must(b, bench.Freeze())
				bench.write(fmt.Sprintf("/d/%d", i), "x")
			}
			for b.Loop() {
				bench.lookup("/d/f")
			}
		})
	}
}
