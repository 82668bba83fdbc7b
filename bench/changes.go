package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// changeVerb is the verb under which the program changes files inside a sandbox.
const changeVerb = "__change"

// changeMain changes files below the current directory: "edit K N" each N-th of the small files
// from the K-th on, which keep their sizes; "make N" makes N files of the sizes of the small ones;
// "empty N" makes N empty files; "big N" writes N files as large as that of the reading rows;
// "one TAG" writes one file.
func changeMain(args []string) error {
	numbers, err := numbersOf(args)
	switch {
	case err != nil:
		return err
	case args[0] == "edit" && len(numbers) == 2:
		return editMany(numbers[0], numbers[1])
	case args[0] == "make" && len(numbers) == 1:
		return eachNew(numbers[0], func(i int) []byte { return text(newRandom(uint64(i)), manySize(i)) })
	case args[0] == "empty" && len(numbers) == 1:
		return eachNew(numbers[0], func(int) []byte { return nil })
	case args[0] == "big" && len(numbers) == 1:
		return makeBigs(numbers[0])
	case args[0] == "one" && len(numbers) == 1:
		return put(filepath.Join(treeOut, "one"), []byte(args[1]))
	}
	return fmt.Errorf("%s %q: not known", changeVerb, args)
}

func numbersOf(args []string) ([]int, error) {
	if len(args) == 0 {
		return nil, errors.New(changeVerb + ": say what to change")
	}
	var numbers []int
	for _, a := range args[1:] {
		n, err := strconv.Atoi(a)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

func editMany(first, step int) error {
	for i := first; i < manyFiles; i += step {
		f, err := os.OpenFile(manyPath(i), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		line := "another line\n"
		_, err = f.WriteAt([]byte(line), int64(manySize(i)-len(line)))
		if err := firstOf(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

func eachNew(n int, content func(i int) []byte) error {
	for i := range n {
		if err := put(fmt.Sprintf("%s/d%03d/n%06d", treeOut, i%1000, i), content(i)); err != nil {
			return err
		}
	}
	return nil
}

func makeBigs(n int) error {
	for i := range n {
		dir := filepath.Join(treeOut, fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := makeBig(context.Background(), dir); err != nil {
			return err
		}
	}
	return nil
}
