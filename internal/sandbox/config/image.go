package config

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Allows reports whether a client may request the image: it is the default image, or Images
// allows it. It compares names in docker's full form, in which "debian" is
// "docker.io/library/debian:latest".
//
// If docker could take a name for an image ID, or the beginning of one, it is allowed only
// if it is listed literally, because an ID can refer to any image of the daemon.
func (d DockerRuntime) Allows(image string) bool {
	if strings.Contains(image, "*") {
		return false
	}
	if image == d.DefaultImage || slices.Contains(d.Images, image) {
		return true
	}
	if maybeID(image) {
		return slices.ContainsFunc(d.Images, func(i string) bool { return isID(i) && bareID(i) == bareID(image) })
	}
	asked, ok := parseImage(image)
	if !ok {
		return false
	}
	return slices.ContainsFunc(append([]string{d.DefaultImage}, d.Images...), func(i string) bool {
		allowed, ok := parseImage(i)
		return ok && !isID(i) && allowed.matches(asked)
	})
}

// IsImage reports whether docker could take s for the name or the ID of an image.
func IsImage(s string) bool {
	_, ok := parseImage(s)
	return !strings.Contains(s, "*") && fs.ValidPath(s) && (ok || maybeID(s))
}

// form compiles a pattern at its first use. The large repetitions take a tenth of a
// megabyte, and every process of a sandbox links this package.
func form(pattern string) func(string) bool {
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
	return func(s string) bool { return compiled().MatchString(s) }
}

var (
	// maybeID is what the daemon looks up as an ID if no image has that name.
	maybeID = form(`^(sha256:)?[0-9a-f]+$`)
	wholeID = form(`^(sha256:)?[0-9a-f]{64}$`)

	// The grammar of references, with * in patterns (distribution's reference
	// package documents it).
	repositoryForm = form(`^[a-z0-9*]+([._*-]+[a-z0-9*]+)*(/[a-z0-9*]+([._*-]+[a-z0-9*]+)*)*$`)
	domainForm     = form(`^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:[0-9]+)?$`)
	tagForm        = form(`^[A-Za-z0-9_*][A-Za-z0-9_.*-]{0,127}$`)
	digestForm     = form(`^[a-z0-9]+([+._-][a-z0-9]+)*:([0-9a-fA-F]{32,}|\*)$`)
)

func isID(image string) bool { return wholeID(image) }

func bareID(image string) string { return strings.TrimPrefix(image, "sha256:") }

// imageName is a reference to an image, or a pattern of such, in full.
type imageName struct {
	domain, repository string
	tag                string // "" beside a digest: docker does not look at it
	digest             string
}

// parseImage parses a reference like docker: [DOMAIN/]REPOSITORY[:TAG][@DIGEST].
func parseImage(s string) (n imageName, ok bool) {
	s, digest, digested := strings.Cut(s, "@")
	if n.digest = digest; digested && !digestForm(n.digest) {
		return n, false
	}
	if colon := strings.LastIndexByte(s, ':'); colon > strings.LastIndexByte(s, '/') {
		s, n.tag = s[:colon], s[colon+1:]
		if !tagForm(n.tag) {
			return n, false
		}
	}
	first, rest, deep := strings.Cut(s, "/")
	switch {
	case deep && (strings.ContainsAny(first, ".:") || first == "localhost" || first != strings.ToLower(first)):
		n.domain, n.repository = first, rest
	default:
		n.domain, n.repository = dockerHub, s
	}
	if n.domain == "index."+dockerHub {
		n.domain = dockerHub
	}
	if n.domain == dockerHub && !strings.Contains(n.repository, "/") {
		n.repository = "library/" + n.repository
	}
	switch {
	case n.digest != "":
		n.tag = ""
	case n.tag == "":
		n.tag = "latest"
	}
	return n, domainForm(n.domain) && repositoryForm(n.repository)
}

// dockerHub is the registry of names without one.
const dockerHub = "docker.io"

// matches reports whether the pattern n matches the image. A * matches any characters
// except /. Only a pattern with a digest matches an image with a digest, because docker
// then ignores the tag.
func (n imageName) matches(image imageName) bool {
	return (n.digest == "") == (image.digest == "") && n.domain == image.domain &&
		covers(n.repository, image.repository) && covers(n.tag, image.tag) && covers(n.digest, image.digest)
}

func covers(pattern, s string) bool {
	ok, err := path.Match(pattern, s)
	return ok && err == nil
}

// Permits reports whether a client may request the runtime.
func (r Runtime) Permits(t RuntimeType) bool { return t == r.Type || slices.Contains(r.Allowed, t) }
