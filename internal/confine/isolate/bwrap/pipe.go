package bwrap

import "os"

// pipes control bubblewrap. It waits for its options on args, so that it can be moved to a
// control group before it makes a namespace. It reports the pid of its child on info, and
// blocks the child until release is closed.
type pipes struct {
	args, childArgs     *os.File
	info, childInfo     *os.File
	release, childBlock *os.File
}

func newPipes() (*pipes, error) {
	p := &pipes{}
	for _, pair := range []struct{ read, write **os.File }{
		{&p.childArgs, &p.args}, {&p.info, &p.childInfo}, {&p.childBlock, &p.release},
	} {
		var err error
		if *pair.read, *pair.write, err = os.Pipe(); err != nil {
			p.closeOurs()
			p.closeTheirs()
			return nil, err
		}
	}
	return p, nil
}

func (p *pipes) closeOurs() { closeAll(p.args, p.info, p.release) }

func (p *pipes) closeTheirs() { closeAll(p.childArgs, p.childInfo, p.childBlock) }

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
