package bwrap

import "os"

// pipes are how bubblewrap is led: it waits for its options, and so can be
// moved before it makes any namespace; it tells the pid of its child; and it
// holds the child until it is released.
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
