package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// What is learned from a run never shows a secret that the run did not use: not by the name beside
// siblings that agree, not by its content, not because the command made a file of that name, and
// not because a name of the workspace is a pattern.
func TestLearningShowsNoSecret(t *testing.T) {
	token := "gh" + "p_" + "a8Kd93JfLs02mZxQwE71vBnTyUiOp45RtGh6"
	files := map[string]string{
		"config/a.yaml": "a", "config/b.yaml": "b", "config/c.yaml": "c", "config/secrets.yaml": "planted",
		"keys/a.pub": "a", "keys/b.pub": "b", "keys/c.pub": "c", "keys/id_rsa": "planted",
		"conf/a.txt": "a", "conf/b.txt": "b", "conf/c.txt": "c", "conf/d.txt": "token = " + token,
		"lib/deep/x/a.js": "a", "lib/deep/y/a.js": "a", "lib/deep/z/a.js": "a", "lib/deep/z/.npmrc": "planted",
		".env": "planted", "private/a.md": "planted",
		"g/*": "planted too", "g/planted": "planted", "n\n- {pattern: '**', permission: write}": "x",
	}
	for i := range 30 { // so many rules that directories are merged
		files["many/"+string(rune('a'+i%26))+"/d"+string(rune('a'+i))+"/x"] = "x"
	}
	files["many/a/notes"], files["many/service-account.json"] = "my = "+token, "planted"
	s := harness.New(t, binary, files)
	file := filepath.Join(t.TempDir(), "learned.yaml")
	script := `cat config/[abc].yaml keys/*.pub conf/[abc].txt lib/deep/*/a.js 'g/*' n* many/*/*/x >/dev/null
cat .env private/a.md; mkdir out; for i in 1 2 3 4; do echo mine >out/$i; done; echo mine >out/.env; true`
	got := s.Agentfense("run", "--rm", "--dir", s.Source, "--preset", "development", "--hide", "/private/", "--learn", file, "--", "sh", "-c", script)
	wantCode(t, got, 0)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got = s.Agentfense("run", "--rm", "--dir", s.Source, "--policy", file, "--", "sh", "-c",
		script+`
echo PROBE; cat config/secrets.yaml keys/id_rsa conf/d.txt lib/deep/z/.npmrc .env private/a.md g/planted many/a/notes many/service-account.json
grep -rl -e '^planted$' -e ghp_ .`)
	_, probed, found := strings.Cut(got.Stdout, "PROBE\n")
	if !found || strings.Contains(probed, "planted") || strings.Contains(probed, token) || strings.TrimSpace(probed) != "" {
		t.Errorf("a secret shows:\n%s\n%s\n%s", got.Stdout, got.Stderr, text)
	}
	for _, hostile := range []string{"\n- {pattern: '**'", token, "planted\""} {
		if strings.Contains(string(text), hostile) {
			t.Errorf("the file contains %q:\n%s", hostile, text)
		}
	}
	if r := s.Agentfense("policy", "test", file); r.Code != 0 {
		t.Errorf("policy test: %s%s", r.Stdout, r.Stderr)
	}
}
