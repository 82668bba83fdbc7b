package bwrap_test

import (
	"testing"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/confine/isolate/bwrap"
	"github.com/agentfense/agentfense/internal/confine/isolate/isolatetest"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func TestMain(m *testing.M) { isolatetest.Main(m) }

func TestConformance(t *testing.T) {
	testenv.Bwrap(t)
	isolatetest.Run(t, func(testing.TB) isolate.Isolator { return bwrap.New(bwrap.Options{}) })
}

func Benchmark(b *testing.B) {
	testenv.Bwrap(b)
	isolatetest.Benchmark(b, func(testing.TB) isolate.Isolator { return bwrap.New(bwrap.Options{}) })
}
