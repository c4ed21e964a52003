/* ls.c NAME PATH: lists a directory of a published tree, and checks the tree with -v. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <vouch.h>

int main(int argc, char **argv)
{
    struct vouch_options options;
    struct vouch_tree *tree;
    struct vouch_list *list;
    struct vouch_stat stat;
    const char *name;
    uint64_t bad = 0;
    int more;
    if (argc < 3) {
        fprintf(stderr, "usage: ls NAME PATH [-v]\n");
        return 2;
    }
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.timeout_ms = 10000;
    if (vouch_open(argv[1], &options, &tree) < 0) {
        fprintf(stderr, "ls: %s\n", vouch_message());
        return 1;
    }
    if (vouch_list_open(tree, argv[2], &list) < 0) {
        fprintf(stderr, "ls: %s\n", vouch_message());
        vouch_close(tree);
        return 1;
    }
    while ((more = vouch_list_next(list, &name, &stat)) > 0)
        printf("%o %" PRIu64 " %s\n", stat.mode, stat.size, name);
    vouch_list_close(list);
    if (more == 0 && argc > 3 && vouch_verify(tree, &bad) == 0)
        printf("%" PRIu64 " bad frames\n", bad);
    vouch_close(tree);
    return more < 0 || bad > 0;
}
