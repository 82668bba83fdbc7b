package bwrap_test

import (
	"testing"

	"github.com/agentfense/agentfense/internal/isolate"
	"github.com/agentfense/agentfense/internal/isolate/bwrap"
	"github.com/agentfense/agentfense/internal/isolate/isolatetest"
	"github.com/agentfense/agentfense/internal/needs"
)

func TestMain(m *testing.M) { isolatetest.Main(m) }

func TestConformance(t *testing.T) {
	needs.Bwrap(t)
	isolatetest.Run(t, func(testing.TB) isolate.Isolator { return bwrap.New(bwrap.Options{}) })
}

func Benchmark(b *testing.B) {
	needs.Bwrap(b)
	isolatetest.Benchmark(b, func(testing.TB) isolate.Isolator { return bwrap.New(bwrap.Options{}) })
}
