package nearest_test

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/nearest"
)

func TestWord(t *testing.T) {
	words := []string{"none", "view", "read", "write", "development", "directory"}
	tests := []struct{ name, word, want string }{
		{"swapped neighbours", "raed", "read"},
		{"a letter missing", "wite", "write"},
		{"a letter too many", "viewe", "view"},
		{"another letter", "nine", "none"},
		{"capitals", "READ", "read"},
		{"an abbreviation", "dir", "directory"},
		{"nothing alike", "execute", ""},
		{"the empty word", "", ""},
		{"a very long word", string(make([]byte, 1000)), ""},
		{"two edits of a long word", "devlopement", "development"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := nearest.Word(tt.word, words); got != tt.want {
				t.Errorf("Word(%q) = %q, want %q", tt.word, got, tt.want)
			}
		})
	}
}
