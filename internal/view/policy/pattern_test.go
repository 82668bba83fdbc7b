package policy_test

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestWhichPathsAPatternMeans(t *testing.T) {
	runDecide(t, []decideCase{
		{
			"type file is the equal path",
			[]string{"/a/b=read file"},
			map[vpath.Path]string{"/a/b": "read", "/a/b/c": "none", "/a/bc": "none", "/x/a/b": "none", "/a": "traversable"},
		},
		{
			"type directory is the path and all below",
			[]string{"/a/b=read directory"},
			map[vpath.Path]string{"/a/b": "read", "/a/b/c/d": "read", "/a/bc": "none", "/a": "traversable"},
		},
		{
			"a metacharacter makes a glob",
			[]string{"/a*=read"},
			map[vpath.Path]string{"/ab": "read", "/a*": "read", "/ab/c": "none"},
		},
		{
			"a slash at the end makes a directory",
			[]string{"/a/=read"},
			map[vpath.Path]string{"/a": "read", "/a/b": "read"},
		},
		{
			"anything else is a file",
			[]string{"/a=read"},
			map[vpath.Path]string{"/a": "read", "/a/b": "none"},
		},
		{
			"a glob's slash at the end means the directory and all below",
			[]string{"**/secrets/=read"},
			map[vpath.Path]string{"/secrets": "read", "/x/secrets/a/b": "read"},
		},
		{
			"type glob without wildcards reads its slash at the end alike",
			[]string{"/secrets/=read glob", ".env=read glob"},
			map[vpath.Path]string{"/secrets/a": "read", "/x/.env": "read", "/x/.env/a": "traversable"},
		},
		{
			"a name matches at any depth",
			[]string{".env=read"},
			map[vpath.Path]string{"/.env": "read", "/a/b/.env": "read", "/.envx": "traversable"},
		},
		{
			"a glob without a slash matches at any depth",
			[]string{"*.pem=read"},
			map[vpath.Path]string{"/x.pem": "read", "/a/b/x.pem": "read"},
		},
		{
			"a directory's name matches at any depth",
			[]string{"secrets/=read"},
			map[vpath.Path]string{"/secrets": "read", "/a/secrets/b": "read", "/a/secretsx": "traversable", "/x": "traversable"},
		},
		{
			"a slash before the last character ties to the root",
			[]string{"/x=read", "a/*.go=read", "a/b/=read"},
			map[vpath.Path]string{"/x": "read", "/y/x": "none", "/a/m.go": "read", "/y/a/m.go": "none", "/a/b/c": "read", "/y/a/b": "none"},
		},
		{
			"a dot and a slash tie to the root",
			[]string{"./x=read", "./*.go=read"},
			map[vpath.Path]string{"/x": "read", "/m.go": "read", "/y/x": "none", "/y/m.go": "none"},
		},
		{
			"a given type file or directory ties to the root",
			[]string{"x=read file", "d=read directory", "e/=read directory"},
			map[vpath.Path]string{"/x": "read", "/y/x": "none", "/d/z": "read", "/y/d": "none", "/e/z": "read", "/y/e": "none"},
		},
		{
			"a given type file or directory has no wildcards",
			[]string{"/a*=read file", `/b\[=read directory`},
			map[vpath.Path]string{"/a*": "read", "/ab": "none", `/b\[/x`: "read", "/b[": "none"},
		},
		{
			"a dot is the workspace itself",
			[]string{".=view", "./=read@-1"},
			map[vpath.Path]string{"/": "view", "/a": "read"},
		},
		{
			"a prefix of a name is no directory",
			[]string{"/src/=read"},
			map[vpath.Path]string{"/src/a": "read", "/src-secret": "none", "/src-secret/a": "none"},
		},
	})
}
