//go:build linux

package client

import (
	"testing"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// Each word that a program may send is a value of the API, and comes back as it was.
func TestWordsAreValues(t *testing.T) {
	for _, w := range []Permission{None, View, Read, Write} {
		v, ok := value[sandboxv1.Permission]("PERMISSION_", string(w), sandboxv1.Permission_value)
		if got := permissionFrom(v); !ok || v == 0 || got != w {
			t.Errorf("permission %s: %v, back %s", w, v, got)
		}
	}
	for _, w := range []PatternType{Glob, Directory, File, Auto} {
		v, ok := value[sandboxv1.PatternType]("PATTERN_TYPE_", string(w), sandboxv1.PatternType_value)
		if got := PatternType(knownWord("PATTERN_TYPE_", v)); !ok || v == 0 || got != w {
			t.Errorf("type %s: %v, back %s", w, v, got)
		}
	}
	for _, w := range []RuleOrigin{OriginRule, OriginFlag, OriginHide} {
		v, ok := value[sandboxv1.RuleOrigin]("RULE_ORIGIN_", string(w), sandboxv1.RuleOrigin_value)
		if got := RuleOrigin(word("RULE_ORIGIN_", v)); !ok || got != w {
			t.Errorf("origin %s: %v, back %s", w, v, got)
		}
	}
	for _, w := range []RuntimeType{"", Bwrap, Docker} {
		v, ok := value[sandboxv1.RuntimeType]("RUNTIME_TYPE_", string(w), sandboxv1.RuntimeType_value)
		if got := RuntimeType(knownWord("RUNTIME_TYPE_", v)); !ok || got != w {
			t.Errorf("runtime %s: %v, back %s", w, v, got)
		}
	}
	for _, w := range []SyncMode{"", SyncOnExec, SyncOnStop, SyncManual} {
		v, ok := value[sandboxv1.SyncMode]("SYNC_MODE_", string(w), sandboxv1.SyncMode_value)
		if got := SyncMode(knownWord("SYNC_MODE_", v)); !ok || got != w {
			t.Errorf("sync %s: %v, back %s", w, v, got)
		}
	}
	for _, w := range []string{"Write", "unspecified", "rw"} {
		if v, ok := value[sandboxv1.Permission]("PERMISSION_", w, sandboxv1.Permission_value); ok {
			t.Errorf("permission %q: %v, want it to be refused", w, v)
		}
	}
	if got := permissionFrom(77); got != None {
		t.Errorf("a permission of a newer server: %q", got)
	}
}
