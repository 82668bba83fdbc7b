package redact

import (
	"bytes"
	"testing"
)

// fuzzMask checks of any content that masking ends without a panic, within the bounds, and
// that the result can be masked again.
func fuzzMask(f *testing.F, mask func([]byte) ([]byte, error), seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		masked, err := mask(content)
		if err != nil {
			if masked != nil {
				t.Fatalf("%q with the error %v", masked, err)
			}
			return
		}
		if len(masked) > maxOutput {
			t.Fatalf("%d bytes", len(masked))
		}
		if len(masked) > MaxBytes {
			return
		}
		again, err := mask(masked)
		if err != nil || !bytes.Equal(masked, again) {
			t.Fatalf("%q is masked again as %q, %v", masked, again, err)
		}
	})
}

func FuzzEnv(f *testing.F) {
	fuzzMask(f, Env, "A=1\n", "export A=\"x\ny\" # c\n", "A=b\\\nc\n", "A=$(x)\n", "A='\\'\n")
}

func FuzzJSON(f *testing.F) {
	fuzzMask(f, JSON, `{"a":[1,"x",null,true,{}]}`, `[[],[[]]]`, `"\ud800"`)
}

func FuzzYAML(f *testing.F) {
	fuzzMask(f, YAML, "a: &x [1, y]\nb: *x\n", "- |\n a\n- >\n b\n", "<<: {a: 1}\n", "? a\n: b\n", "%YAML 1.2\n---\na\n...\n---\n", "!!map {a: !!str 1}\n")
}

func FuzzTOML(f *testing.F) {
	fuzzMask(f, TOML, "a.b=1\n[c]\nd=[{e='x'},1]\n", "[[a]]\n[[a.b]]\n", "a=2020-01-01\nb=10:00:00\n", "\"\"=\"\"\"\nx\"\"\"\n")
}
