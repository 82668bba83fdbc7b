package bwrap

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// stageCertificates is the directory that becomes isolate.CertificatesDir.
const stageCertificates = stageDir + "/certificates"

// readCertificates prepares what shows the authority of the spec inside, after the rest of /etc was
// read: the files of isolate.CertificatesDir, and the bundle in place of each of the host's.
func (p *plan) readCertificates() error {
	if p.spec.Authority == nil {
		return nil
	}
	var trusted []byte
	for _, path := range isolate.Bundles {
		resolved, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		if trusted == nil {
			if trusted, err = isolate.ReadBundle(resolved); err != nil {
				return err
			}
		}
		if isolate.IsBelowAny(resolved, slices.Concat(systemDirs, p.etcDirs)) && !slices.Contains(p.bundles, resolved) {
			p.bundles = append(p.bundles, resolved)
		}
	}
	p.certificates = p.spec.CertificateFiles(trusted)
	for _, path := range isolate.Bundles {
		if p.etcFiles[path].content != nil { // a copy
			p.etcFiles[path] = etcFile{content: p.certificates[filepath.Base(isolate.BundleFile)]}
		}
	}
	return nil
}

// buildCertificates writes the files to the stage.
func (p *plan) buildCertificates() error {
	for name, content := range p.certificates {
		target := filepath.Join(stageCertificates, name)
		err := makeDir(stageCertificates)
		if err == nil {
			err = writeNew(target, content)
		}
		if err != nil {
			return errdefs.New(errdefs.Internal, "stage certificates: %w", cause(err))
		}
	}
	return nil
}

// showCertificates mounts them, over a /run and an /etc that are there.
func (p *plan) showCertificates(a *arguments) {
	if p.certificates == nil {
		return
	}
	if p.spec.Notes == "" {
		a.add("--ro-bind", stageCertificates, isolate.CertificatesDir)
	} else {
		for _, name := range slices.Sorted(maps.Keys(p.certificates)) {
			a.add("--ro-bind", filepath.Join(stageCertificates, name), filepath.Join(isolate.CertificatesDir, name))
		}
	}
	for _, path := range p.bundles {
		a.add("--ro-bind", filepath.Join(stageCertificates, filepath.Base(isolate.BundleFile)), path)
	}
}
