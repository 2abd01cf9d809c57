// SPDX-License-Identifier: Apache-2.0
// The significant bits of a V4L2 format's samples; 0: not one of docs/fpga-interface.md.

module tcam_format (
    input  wire [31:0] format,  // the first character is the lowest byte
    output reg  [ 4:0] bits
);
    always @* begin
        case ({format[7:0], format[15:8], format[23:16], format[31:24]})
            "RGGB", "GRBG", "GBRG", "BA81", "GREY": bits = 5'd8;
            "RG10", "BA10", "GB10", "BG10", "Y10 ": bits = 5'd10;
            "RG12", "BA12", "GB12", "BG12", "Y12 ": bits = 5'd12;
            "RG14", "GR14", "GB14", "BG14", "Y14 ": bits = 5'd14;
            "RG16", "GR16", "GB16", "BYR2", "Y16 ": bits = 5'd16;
            default: bits = 5'd0;
        endcase
    end
endmodule
