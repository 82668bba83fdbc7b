package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func rowOf(t *testing.T, id string) row {
	t.Helper()
	for _, r := range allRows {
		if r.ID == id {
			return r
		}
	}
	t.Fatalf("no row %s", id)
	return row{}
}

func exampleResult(t *testing.T) result {
	t.Helper()
	ms := func(v ...float64) samples {
		for i := range v {
			v[i] *= 1e6
		}
		return v
	}
	return result{
		Machine: machine{Kernel: "6.18.0", FileSystem: "ext4", Dir: "/var/tmp", CPUs: 2, Root: true},
		Rounds:  3, Took: 125 * time.Second,
		Places: []string{nativeName, agentfenseName, overlayName, "bwrap bind"},
		Rows: []measured{
			{row: rowOf(t, "grep-warm"), Samples: map[string]samples{
				nativeName: ms(50, 60, 55), agentfenseName: ms(75, 96, 77), overlayName: ms(74, 99, 80), "bwrap bind": ms(50, 61, 57),
			}},
			{row: rowOf(t, "read-random"), Samples: map[string]samples{nativeName: ms(0.7, 0.75, 0.9), agentfenseName: ms(0.8, none, 0.95), overlayName: ms(none, none, none)}},
			{row: rowOf(t, "unlink"), Samples: map[string]samples{nativeName: ms(5, 5, 5), agentfenseName: ms(40, 41, 1500), overlayName: ms(8, 8, 8), "bwrap bind": ms(5, 6, 5)}},
			{row: rowOf(t, "exec"), Samples: map[string]samples{agentfenseName: ms(-0.2, 7.25, 8)}},
			{row: rowOf(t, "memory-idle"), Samples: map[string]samples{agentfenseName: {9 << 20, 11 << 20, 9.5 * (1 << 20)}, "bwrap bind": {1 << 19, 1 << 19, 1 << 19}}},
			{row: rowOf(t, "memory-walked"), Samples: map[string]samples{}},
		},
		Notes: []string{"untar in overlayfs: tar -xf src.tar: exit status 2:\nno space left"},
	}
}

func TestTable(t *testing.T) {
	var got strings.Builder
	if err := writeTable(&got, exampleResult(t)); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/table.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestFewRoundsOnABusyMachineAreSaidToBe(t *testing.T) {
	res := exampleResult(t)
	res.Rounds, res.Machine.Load = 2, 5.25
	var got strings.Builder
	if err := writeTable(&got, res); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Fewer than three rounds", "The machine was busy before the first round (load 5.2)"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("want %q in:\n%s", want, got.String())
		}
	}
}

func TestFormat(t *testing.T) {
	tests := []struct {
		name  string
		unit  unit
		value float64
		want  string
	}{
		{"less than a millisecond", nanoseconds, 999_400, "999 µs"},
		{"three digits", nanoseconds, 12_345_678, "12.3 ms"},
		{"seconds", nanoseconds, 1.5e9, "1.50 s"},
		{"a negative difference", nanoseconds, -2_500_000, "-2.50 ms"},
		{"memory", memoryBytes, 10 << 20, "10.0 MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.unit.Format(tt.value); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got, want := nanoseconds.FormatRange(900_000, 12e6), "0.90–12.0 ms"; got != want {
		t.Errorf("range: got %q, want %q", got, want)
	}
}
