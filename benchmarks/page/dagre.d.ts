declare const dagre: any;
