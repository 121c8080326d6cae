/* The smallest honest CGI program. */
#include <stdio.h>

int main(void) {
    return puts("Content-Type: text/plain\n\nhello, world!") < 0;
}
