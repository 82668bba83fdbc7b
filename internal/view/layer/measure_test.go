package layer

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestMeasureAgreesWithAQuota(t *testing.T) {
	work := func(b *bench) Usage {
		for _, p := range []vpath.Path{"/a", "/b"} {
			f, _, err := b.Create(p, 0o644)
			must(t, err)
			_, err = f.WriteAt(make([]byte, 100_000), 0)
			must(t, err)
			must(t, f.Close())
		}
		_, err := b.Mkdir("/d", 0o755)
		must(t, err)
		b.unlink("/source")
		got, err := b.Measure()
		must(t, err)
		return got
	}
	free := work(newBench(t, map[string]string{"source": "x"}))
	bounded := work(newBench(t, map[string]string{"source": "x"}, func(o *Options) { o.Quota.Bytes = 1 << 30 }))
	if free.Inodes != 3 || free.Bytes < 200_000 || free.Inodes != bounded.Inodes || free.Bytes != bounded.Bytes {
		t.Errorf("measured %+v, by the quota's books %+v", free, bounded)
	}
}
