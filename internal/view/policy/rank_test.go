package policy_test

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestWhichRuleWins(t *testing.T) {
	runDecide(t, []decideCase{
		{
			"no rule means none", nil,
			map[vpath.Path]string{"/a": "none", "/": "traversable"},
		},
		{
			"a higher priority beats type and specificity",
			[]string{"/**=none@1", "/a/b=write"},
			map[vpath.Path]string{"/a/b": "none"},
		},
		{
			"a file beats a directory, a directory a glob",
			[]string{"/a/b=write file", "/a/=read", "/a/b*=view"},
			map[vpath.Path]string{"/a/b": "write", "/a/bc": "read"},
		},
		{
			"a longer literal prefix beats a shorter one",
			[]string{"/**=read", "/secrets/**=none", "/secrets/public.key=read"},
			map[vpath.Path]string{"/a": "read", "/secrets/x": "none", "/secrets/public.key": "read", "/secrets": "traversable"},
		},
		{
			"fewer wildcards beat more",
			[]string{"/a/*/*=read", "/a/*/?*=none"},
			map[vpath.Path]string{"/a/b/c": "read"},
		},
		{
			"everything below a prefix is the least specific with that prefix",
			[]string{"/src/**=read", "/src/**/*.pem=none", "/src/**/*_*.go=write", "/**=view", "**/.env*=none"},
			map[vpath.Path]string{"/src/a/b": "read", "/src/a/b.pem": "none", "/src/a_b.go": "write", "/x": "view", "/.env": "none"},
		},
		{
			"of equal rules the stricter wins",
			[]string{"/a/*.x=write", "/a/*=read", "/a/x*=none@-1"},
			map[vpath.Path]string{"/a/b.x": "read"},
		},
		{
			"the same pattern twice means the stricter",
			[]string{"/a=write", "/a=view"},
			map[vpath.Path]string{"/a": "view"},
		},
		{
			"the order of rules is without meaning",
			[]string{"/a=view", "/a=write"},
			map[vpath.Path]string{"/a": "view"},
		},
	})
}

func TestHowFlagsRank(t *testing.T) {
	runDecide(t, []decideCase{
		{
			"--hide is above every rule",
			[]string{"/a/**=write@1000", "--hide a/*.pem"},
			map[vpath.Path]string{"/a/x.pem": "none", "/a/x": "write"},
		},
		{
			"--hide is above a flag that names the file",
			[]string{"--read /a", "--hide /a"},
			map[vpath.Path]string{"/a": "none"},
		},
		{
			"what lies below a hidden directory is hidden",
			[]string{"/**=write", "--read /a/b", "--hide a"},
			map[vpath.Path]string{"/a": "none", "/a/b": "none", "/x/a/c": "none"},
		},
		{
			"a none rule that wins beats a widening flag",
			[]string{"/**=read", "*.pem=none", "--write **/*"},
			map[vpath.Path]string{"/a": "write", "/x.pem": "none"},
		},
		{
			"a none rule that loses to another rule does not beat a flag",
			[]string{"/a/**=none", "/a/b/**=read@10", "--write /a/b/"},
			map[vpath.Path]string{"/a/b/c": "write", "/a/c": "none"},
		},
		{
			"a widening flag beats every rule that is not none",
			[]string{"/a=read@1000", "--write /*"},
			map[vpath.Path]string{"/a": "write"},
		},
		{
			"a flag may also permit less",
			[]string{"/**=write@1000", "--view /a/"},
			map[vpath.Path]string{"/a/b": "view", "/b": "write"},
		},
		{
			"a flag that names exactly the file beats a none rule",
			[]string{"**/.env*=none@100", "/**=read", "--read ./.env.example"},
			map[vpath.Path]string{"/.env.example": "read", "/.env": "none", "/a/.env.example": "none"},
		},
		{
			"a bare name names exactly the file at the root",
			[]string{"**/.env*=none@100", "--read .env"},
			map[vpath.Path]string{"/.env": "read", "/a/.env": "none"},
		},
		{
			"a bare name is a flag at any depth where no none rule wins",
			[]string{"--read .env"},
			map[vpath.Path]string{"/.env": "read", "/a/.env": "read"},
		},
		{
			"a flag with a wildcard does not name a file",
			[]string{"**/.env*=none@100", "--read /.en?", "--read /{.env,x}"},
			map[vpath.Path]string{"/.env": "none", "/x": "read"},
		},
		{
			"a flag that names a directory does not name a file",
			[]string{"/secrets/=none", "--read /secrets/"},
			map[vpath.Path]string{"/secrets": "none", "/secrets/a": "none"},
		},
		{
			"a flag that names the file beats a none rule of an ancestor",
			[]string{"/secrets/=none@100", "--read /secrets/a/b"},
			map[vpath.Path]string{"/secrets/a/b": "read", "/secrets/a": "traversable", "/secrets": "traversable", "/secrets/c": "none"},
		},
		{
			"a flag does not hide what a rule shows below a none rule",
			[]string{"/a=none", "/a/b=read@1", "--write /a/"},
			map[vpath.Path]string{"/a": "traversable", "/a/b": "write", "/a/c": "none"},
		},
		{
			"of two flags the more specific counts",
			[]string{"--write /**", "--view /a/*", "--read /a/b"},
			map[vpath.Path]string{"/x": "write", "/a/x": "view", "/a/b": "read"},
		},
	})
}

func TestNoneIsInherited(t *testing.T) {
	runDecide(t, []decideCase{
		{
			"a path below one that is none is hidden",
			[]string{"/**=read", "/a=none file"},
			map[vpath.Path]string{"/a": "none", "/a/b": "none", "/a/b/c": "none", "/b": "read"},
		},
		{
			"a rule that outranks the ancestor's shows the path",
			[]string{"/a=none file", "/a/b=read@1"},
			map[vpath.Path]string{"/a": "traversable", "/a/b": "read", "/a/c": "none"},
		},
		{
			"an ancestor's none rule that does not win there is not inherited",
			[]string{"/a=none", "/a=view@1", "/a/b*=read"},
			map[vpath.Path]string{"/a": "view", "/a/bc": "read"},
		},
		{
			"any ancestor's none rule counts, not only the parent's",
			[]string{"/a=none@5", "/a/b=read@1", "/a/b/c=read@1", "/a/b/d=read@9"},
			map[vpath.Path]string{"/a/b": "traversable", "/a/b/c": "none", "/a/b/d": "read"},
		},
		{
			"default deny is not inherited",
			[]string{"/a/b/c=read"},
			map[vpath.Path]string{"/a": "traversable", "/a/b": "traversable", "/a/b/c": "read", "/b": "none"},
		},
		{
			"other permissions are not inherited",
			[]string{"/a=write file"},
			map[vpath.Path]string{"/a": "write", "/a/b": "none"},
		},
	})
}

func TestTraversableDirectories(t *testing.T) {
	runDecide(t, []decideCase{
		{
			"a directory is traversable if a rule may grant something below",
			[]string{"/a/*/c=read"},
			map[vpath.Path]string{"/a": "traversable", "/a/b": "traversable", "/a/b/x": "none", "/b": "none"},
		},
		{
			"a rule for any depth makes every directory traversable",
			[]string{"*.md=read"},
			map[vpath.Path]string{"/a": "traversable", "/a/b": "traversable"},
		},
		{
			"a weaker rule does not make a hidden directory traversable",
			[]string{"/**=read", "**/secrets/**=none@100", "*.md=read@99"},
			map[vpath.Path]string{"/secrets": "none", "/secrets/a.md": "none", "/x/secrets/y": "none"},
		},
		{
			"an outranking rule makes hidden directories traversable",
			[]string{"**/secrets/**=none@100", "*.md=read@101"},
			map[vpath.Path]string{"/secrets": "traversable", "/secrets/x": "traversable", "/secrets/a.md": "read", "/secrets/a": "traversable"},
		},
		{
			"a rule that another one always beats grants nothing",
			[]string{"/a/**=none@1", "/a/b=read"},
			map[vpath.Path]string{"/a": "none", "/a/b": "none", "/": "traversable"},
		},
		{
			"a hidden directory is not traversable for a flag that a none rule beats",
			[]string{"**/secrets/**=none", "--read **/*.md"},
			map[vpath.Path]string{"/secrets": "none", "/secrets/a.md": "none", "/x": "traversable"},
		},
		{
			"the root is always traversable",
			[]string{"/**=none@9", "--hide **"},
			map[vpath.Path]string{"/": "traversable", "/a": "none"},
		},
	})
}
