/* cat.c NAME PATH: writes a file of a published tree to standard output. */
#include <stdio.h>
#include <string.h>
#include <vouch.h>

int main(int argc, char **argv)
{
    struct vouch_tree *tree;
    struct vouch_file *file;
    char buffer[65536];
    uint64_t offset = 0;
    ssize_t count;
    if (argc != 3) {
        fprintf(stderr, "usage: cat NAME PATH\n");
        return 2;
    }
    if (vouch_open(argv[1], NULL, &tree) < 0 || vouch_file_open(tree, argv[2], &file) < 0) {
        fprintf(stderr, "cat: %s\n", vouch_message());
        return 1;
    }
    vouch_close(tree);
    while ((count = vouch_pread(file, buffer, sizeof buffer, offset)) > 0) {
        fwrite(buffer, 1, (size_t)count, stdout);
        offset += (uint64_t)count;
    }
    if (count < 0)
        fprintf(stderr, "cat: %s\n", vouch_message());
    vouch_file_close(file);
    return count < 0;
}
